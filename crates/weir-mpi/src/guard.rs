//! The guard's end: the process that mpirun started, which stands between mpirun and the rank.
//!
//! An mpirun ends its processes where it thinks that something is wrong: MPICH's by SIGKILL as soon as the connection of one
//! of them to it breaks, Open MPI's by SIGTERM and SIGKILL a second later when one ends with another code than 0. Both signal
//! the process that they started and its process group. So that is this one, which has nothing to lose: the rank is its
//! child, in a process group of its own, and reports whatever becomes of the guard. The output is the rank's as well, and an
//! mpirun that waits for its end has the report.
//!
//! One that somebody has stopped has nothing to do until its rank has ended, and is continued then by the link: mpirun would
//! wait for it for ever.
//!
//! Guard, rank and link share a socket, which tells each when the others are gone. A guard whose rank was killed stays until
//! the link has told rank 0, so mpirun ends nobody before there is a report.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use crate::{GUARD, JOINED, SIGNAL, TOLD, WORKER};

/// How long a link may take to tell rank 0 that its rank is gone, and to hear that rank 0 has reported it.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(9);

/// What the guard hears.
enum Heard {
    /// mpirun asks it to end.
    Signal,
    /// The link has joined.
    Joined,
    /// It has told all that there is to tell.
    Told,
    /// Rank and link are gone.
    End,
}

/// Starts the rank by this command and stays until it has ended; gives its exit code. `heed` is given what is to be called
/// when a signal asks this process to end.
///
/// # Errors
/// If it cannot be started.
pub fn keep(
    command: Command,
    heed: impl FnOnce(Box<dyn Fn() + Send>) -> io::Result<()>,
) -> io::Result<u8> {
    let (own, theirs) = UnixStream::pair()?;
    let (sender, heard) = mpsc::channel();
    let (asking, asked) = (own.try_clone()?, sender.clone());
    heed(Box::new(move || {
        // A rank that is gone needs no signal.
        let _ = (&asking).write_all(&[SIGNAL]);
        let _ = asked.send(Heard::Signal);
    }))?;
    let mut rank = {
        // Dropped with its copy of their end, which would keep the socket open.
        let mut command = command;
        let stdin = Stdio::from(OwnedFd::from(theirs));
        command.env(WORKER, "1").env(GUARD, std::process::id().to_string());
        command.stdin(stdin).process_group(0).spawn()?
    };
    thread::spawn(move || {
        let mut own = own;
        let mut word = [0];
        while own.read_exact(&mut word).is_ok() {
            let heard = match word[0] {
                JOINED => Heard::Joined,
                TOLD => Heard::Told,
                _ => continue,
            };
            if sender.send(heard).is_err() {
                return;
            }
        }
        let _ = sender.send(Heard::End);
    });
    let code = rank.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if code != 0 {
        wait_until_told(&heard);
    }
    Ok(code)
}

/// Returns once the link of a rank that has ended has told it to rank 0. If it cannot, as it is gone itself, rank 0 notices
/// by the silence, which takes as long.
fn wait_until_told(heard: &Receiver<Heard>) {
    let until = Instant::now() + TOLD_WITHIN;
    let mut has_joined = false;
    loop {
        match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Heard::Joined) => has_joined = true,
            // A rank without a link has nothing to tell.
            Ok(Heard::End) if has_joined => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(script: &str) -> u8 {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        keep(command, |_| Ok(())).expect("sh can be started")
    }

    #[test]
    fn the_exit_code_is_that_of_the_rank_and_1_if_it_was_killed() {
        assert_eq!((kept("exit 0"), kept("exit 2"), kept("kill -KILL $$")), (0, 2, 1));
    }

    #[test]
    fn a_rank_hears_of_signals_and_has_a_process_group_of_its_own() {
        let mut command = Command::new("sh");
        // If it leads a group it ends with the number of bytes, which is that of signals.
        command.args(["-c", "kill -s 0 -- -$$ || exit 3; exit $(head -c 1 | wc -c)"]);
        let code = keep(command, |raise| {
            raise();
            Ok(())
        });
        assert_eq!(code.expect("sh can be started"), 1);
    }

    #[test]
    fn it_stays_until_the_link_has_told() {
        let (sender, heard) = mpsc::channel();
        sender.send(Heard::Joined).unwrap();
        sender.send(Heard::Told).unwrap();
        wait_until_told(&heard);
        sender.send(Heard::End).unwrap();
        wait_until_told(&heard);
        assert!(heard.try_recv().is_err(), "all was heard");
        // The link was killed: only mpirun's signal, or the time, ends that.
        for word in [Heard::Joined, Heard::End, Heard::Signal] {
            sender.send(word).unwrap();
        }
        wait_until_told(&heard);
        assert!(heard.try_recv().is_err(), "all was heard");
    }
}
