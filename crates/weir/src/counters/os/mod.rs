//! What the operating system counts.
