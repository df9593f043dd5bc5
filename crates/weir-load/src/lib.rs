//! The load generators of weir: UDP floods, pacing, and the control channel.
