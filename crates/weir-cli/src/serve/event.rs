//! What the parts of `weir serve` tell its main thread.

/// What wakes the main thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The user, or whoever started the server, wants it to end, or it has ended by itself.
    Stop,
    /// A generator's run began or started: readings must be taken.
    RunBegan,
    /// A run is over and its report is on its way.
    RunEnded,
    /// The first datagrams came since nothing did.
    Came,
    /// A line of the standard input, where its end ends the server.
    Asked(String),
    /// Something to tell the user.
    Note(String),
    /// A line of what the server shows.
    Line(String),
}
