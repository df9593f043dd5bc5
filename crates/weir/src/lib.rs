//! Every I/O design of a server, on Linux and on Windows, behind one small API.
