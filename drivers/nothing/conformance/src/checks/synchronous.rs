//! read(2), preadv2(2) and ioctl(2).

use super::refuses;
use crate::abi::{
    Completion, Counts, Dispatch, MODES, MOST_DELAY_NS, Mode, Nothing, pending_modes,
};
use anyhow::{Context as _, Result, ensure};
use std::{
    io,
    path::Path,
    ptr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// What `count` I/Os that were not refused leave in the counts.
fn expected(mode: Mode, count: u64) -> Counts {
    if mode.pends() {
        Counts { pended: count, completed: count, ..Counts::default() }
    } else {
        Counts { inlined: count, ..Counts::default() }
    }
}

/// Every read reaches the device, one of no bytes too, and brings what was set.
pub fn reads(_: &Path) -> Result<()> {
    for mode in MODES {
        let nothing = Nothing::set_up(mode.with(0, 0))?;
        let mut buffer = [0xA5_u8; 4096];
        ensure!(nothing.read(&mut [])? == 0, "{mode:?}: bytes out of nothing");
        ensure!(nothing.read(&mut buffer)? == 0, "{mode:?}: bytes that were not set");
        ensure!(buffer == [0xA5; 4096], "{mode:?}: wrote though it brought nothing");

        nothing.set(mode.with(100, 0))?;
        ensure!(nothing.read(&mut buffer)? == 100, "{mode:?}: not 100 bytes");
        ensure!(buffer[..100] == [0; 100], "{mode:?}: not zeroes");
        ensure!(buffer[100..] == [0xA5; 3996], "{mode:?}: wrote behind what it brought");
        ensure!(nothing.read(&mut buffer[..7])? == 7, "{mode:?}: not what was asked for");
        ensure!(nothing.read_with(&mut buffer, 0)? == 100, "{mode:?}: preadv2 differs");
        let counts = nothing.count()?;
        ensure!(counts == expected(mode, 5), "{mode:?}: {counts:?}");

        // SAFETY: the kernel refuses the address, which is what is looked for.
        let result = unsafe { libc::read(nothing.fd(), ptr::without_provenance_mut(8), 100) };
        refuses("no such address", crate::abi::answer(result), libc::EFAULT)?;
        ensure!(nothing.count()? == counts, "{mode:?}: a read that failed was counted");
    }
    Ok(())
}

/// Who must not wait is served where nothing pends, and refused where it would.
pub fn nonblocking(_: &Path) -> Result<()> {
    for mode in MODES {
        let nothing = Nothing::set_up(mode.with(3, 0))?;
        let impatient = Nothing::open_with(libc::O_NONBLOCK)?;
        impatient.set(mode.with(3, 0))?;
        let mut buffer = [0; 16];
        let now = nothing.read_with(&mut buffer, libc::RWF_NOWAIT);
        let opened = impatient.read(&mut buffer);
        let control = impatient.do_nothing();
        if mode.pends() {
            refuses("RWF_NOWAIT", now, libc::EAGAIN)?;
            refuses("O_NONBLOCK", opened, libc::EAGAIN)?;
            refuses("ioctl of O_NONBLOCK", control, libc::EAGAIN)?;
            ensure!(nothing.count()? == Counts::default(), "{mode:?}: a refusal was counted");
            ensure!(impatient.count()? == Counts::default(), "{mode:?}: a refusal was counted");
        } else {
            ensure!(now? == 3 && opened? == 3 && control? == 0);
            ensure!(nothing.count()?.nonblocking == 1);
            let counts = impatient.count()?;
            ensure!((counts.nonblocking, counts.inlined) == (2, 2), "{mode:?}: {counts:?}");
        }
    }
    Ok(())
}

/// The ioctl that does nothing.
pub fn control(_: &Path) -> Result<()> {
    for mode in MODES {
        let nothing = Nothing::set_up(mode.with(100, 0))?;
        for _ in 0..50 {
            ensure!(nothing.do_nothing()? == 0, "{mode:?}: brought something");
        }
        ensure!(nothing.count()? == expected(mode, 50), "{mode:?}: {:?}", nothing.count()?);
    }
    Ok(())
}

/// Threads that share an open file.
pub fn threads(_: &Path) -> Result<()> {
    const THREADS: u64 = 4;
    const READS: u64 = 50;
    for mode in MODES {
        let delays: &[u64] = if mode.pends() { &[0, 1_000] } else { &[0] };
        for &delay in delays {
            let nothing = Nothing::set_up(mode.with(1, delay))?;
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|_| {
                        scope.spawn(|| -> Result<()> {
                            for _ in 0..READS {
                                ensure!(nothing.read(&mut [0; 8])? == 1);
                            }
                            Ok(())
                        })
                    })
                    .collect();
                for thread in threads {
                    thread.join().expect("it does not panic")?;
                }
                anyhow::Ok(())
            })
            .with_context(|| format!("{mode:?}"))?;
            let counts = nothing.count()?;
            ensure!(counts == expected(mode, THREADS * READS), "{mode:?}: {counts:?}");
        }
    }
    Ok(())
}

extern "C" fn ignore(_: i32) {}

/// A signal ends a read that waits, and what was pending goes with it.
pub fn signal(_: &Path) -> Result<()> {
    // SAFETY: all zeroes is a value of it: no flags (so calls are not made again), an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: the handler does nothing, which is safe at any time.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) };
    for mode in pending_modes() {
        let nothing = Nothing::set_up(mode.with(0, MOST_DELAY_NS))?;
        thread::scope(|scope| {
            let reader = Reader::start(scope, &nothing)?;
            until_pending(&nothing, 1)?;
            refuses("a signal", reader.interrupt(), libc::EINTR)
        })
        .with_context(|| format!("{mode:?}"))?;
        let counts = nothing.count()?;
        let expected = Counts { pended: 1, cancelled: 1, ..Counts::default() };
        ensure!(counts == expected, "{mode:?}: {counts:?}");
    }
    // One that waits for its turn, not for its time.
    let mode = Mode(Completion::Timer, Dispatch::Sequential);
    let nothing = Nothing::set_up(mode.with(0, MOST_DELAY_NS))?;
    thread::scope(|scope| {
        let first = Reader::start(scope, &nothing)?;
        until_pending(&nothing, 1)?;
        let second = Reader::start(scope, &nothing)?;
        until_pending(&nothing, 2)?;
        refuses("a signal", second.interrupt(), libc::EINTR)?;
        ensure!(first.end()? == 0);
        Ok(())
    })
}

/// A thread that reads once.
struct Reader<'scope> {
    thread: thread::ScopedJoinHandle<'scope, io::Result<usize>>,
    id: libc::pthread_t,
}

impl<'scope> Reader<'scope> {
    fn start(scope: &'scope thread::Scope<'scope, '_>, nothing: &'scope Nothing) -> Result<Self> {
        let (tell, id) = mpsc::channel();
        let thread = scope.spawn(move || {
            // SAFETY: it has no conditions.
            tell.send(unsafe { libc::pthread_self() }).expect("who starts it waits");
            nothing.read(&mut [0; 8])
        });
        Ok(Self { thread, id: id.recv()? })
    }

    /// Sends it a signal, and says what the read answered.
    fn interrupt(self) -> io::Result<usize> {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(self.id, libc::SIGUSR1) };
        self.end()
    }

    fn end(self) -> io::Result<usize> {
        self.thread.join().expect("it does not panic")
    }
}

/// Waits until so many I/Os are pending.
pub fn until_pending(nothing: &Nothing, count: u64) -> Result<()> {
    let start = Instant::now();
    while nothing.count()?.pending != count {
        ensure!(start.elapsed() < Duration::from_secs(60), "{:?}", nothing.count()?);
        thread::yield_now();
    }
    Ok(())
}
