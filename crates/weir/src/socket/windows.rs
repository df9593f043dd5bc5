//! Datagram sockets of Windows.
