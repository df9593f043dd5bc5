//! Registered I/O on AF_XDP.

#[cfg(target_os = "linux")]
mod linux;
