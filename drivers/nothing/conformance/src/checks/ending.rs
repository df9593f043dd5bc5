//! I/O that is cancelled, or whose file, process, CPU or module goes.

use super::{CHILD, between, refuses, synchronous::until_pending};
use crate::{
    abi::{
        Completion, Counts, Dispatch, MODES, MOST_DELAY_NS, MOST_PENDING, Mode, Nothing,
        pending_modes,
    },
    aio::Aio,
    module,
    ring::{Operation, Ring},
};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const CANCELED: i32 = -libc::ECANCELED;
/// What takes longer hangs. That nothing waited for its delay is told by how it ended: a busy machine may need any time.
const SOON: Duration = Duration::from_secs(60);

/// NOTHING_CANCEL ends what has its turn and what has not.
pub fn cancel_ring(_: &Path) -> Result<()> {
    for mode in pending_modes() {
        for operation in [Operation::Read(8), Operation::Command] {
            let nothing = Nothing::set_up(mode.with(1, MOST_DELAY_NS))?;
            let mut ring = Ring::new(32)?;
            ring.submit(nothing.fd(), operation, 20, false)?;
            let start = Instant::now();
            ensure!(nothing.count()?.pending == 20, "{mode:?}: {:?}", nothing.count()?);
            ensure!(nothing.cancel()? == 20, "{mode:?}: not all of them");
            let ends = ring.ends(20)?;
            between(&format!("{mode:?}: the end"), start.elapsed(), Duration::ZERO, SOON)?;
            ensure!(ends.iter().all(|end| end.result == CANCELED), "{mode:?}: {ends:?}");
            let counts = nothing.count()?;
            let expected =
                Counts { pended: 20, cancelled: 20, nonblocking: 20, ..Counts::default() };
            ensure!(counts == expected, "{mode:?}: {counts:?}");
            // The file is as good as before.
            nothing.set(mode.with(1, 0))?;
            ensure!(nothing.read(&mut [0; 8])? == 1);
        }
    }
    Ok(())
}

/// A thread that waits is told, too.
pub fn cancel_thread(_: &Path) -> Result<()> {
    for mode in pending_modes() {
        let nothing = Nothing::set_up(mode.with(1, MOST_DELAY_NS))?;
        thread::scope(|scope| {
            let reader = scope.spawn(|| nothing.read(&mut [0; 8]));
            until_pending(&nothing, 1)?;
            ensure!(nothing.cancel()? == 1, "{mode:?}: not the one that is pending");
            refuses("the read", reader.join().expect("it does not panic"), libc::ECANCELED)
        })?;
    }
    Ok(())
}

/// Where nothing is pending, nothing is cancelled.
pub fn cancel_nothing(_: &Path) -> Result<()> {
    for mode in MODES {
        let nothing = Nothing::set_up(mode.with(1, 0))?;
        nothing.read(&mut [0; 8])?;
        ensure!(nothing.cancel()? == 0, "{mode:?}: something was");
    }
    Ok(())
}

/// One more than may be pending is refused, and the others end.
pub fn most_pending(_: &Path) -> Result<()> {
    let mode = Mode(Completion::Timer, Dispatch::Sequential);
    let nothing = Nothing::set_up(mode.with(0, MOST_DELAY_NS))?;
    let most = MOST_PENDING as usize;
    let mut ring = Ring::new(4096)?;
    // All wait for the first, and it is let go once all are there.
    ring.submit(nothing.fd(), Operation::Read(0), most, false)?;
    let over = nothing.count()?.completed as usize;
    ring.submit(nothing.fd(), Operation::Read(0), over + 1, false)?;
    let start = Instant::now();
    nothing.cancel()?;
    let mut busy = 0;
    let mut cancelled = 0;
    let mut completed = 0;
    for end in ring.ends(most + over + 1)? {
        match -end.result {
            0 => completed += 1,
            libc::EBUSY => busy += 1,
            libc::ECANCELED => cancelled += 1,
            errno => bail!("{}", io::Error::from_raw_os_error(errno)),
        }
    }
    // A second may pass between the submissions, and each lets one in.
    ensure!((1..=2).contains(&busy), "{busy} were refused");
    ensure!(cancelled + completed + busy == most + over + 1);
    ensure!(cancelled >= most - 2, "{cancelled} were cancelled in {:?}", start.elapsed());
    let counts = nothing.count()?;
    ensure!((counts.cancelled, counts.pending) == (cancelled as u64, 0), "{counts:?}");
    Ok(())
}

/// Closing a descriptor ends what the process has pending on the file, and what is over lets the module
/// go, though the ring is still there.
pub fn close_pending(path: &Path) -> Result<()> {
    for mode in pending_modes() {
        for operation in [Operation::Read(8), Operation::Command] {
            let nothing = Nothing::set_up(mode.with(5, MOST_DELAY_NS))?;
            let mut ring = Ring::new(8)?;
            ring.submit(nothing.fd(), operation, 5, false)?;
            ensure!(!ring.has_end(), "{mode:?}: ended early");
            let start = Instant::now();
            drop(nothing);
            let ends = ring.ends(5)?;
            between(&format!("{mode:?}: the end"), start.elapsed(), Duration::ZERO, SOON)?;
            ensure!(ends.iter().all(|end| end.result == CANCELED), "{mode:?}: {ends:?}");
            module::unload_when_free()?;
            module::load(path, "")?;
        }
        let nothing = Nothing::set_up(mode.with(5, MOST_DELAY_NS))?;
        let mut aio = Aio::read(nothing.fd(), 5, 8)?;
        drop(nothing);
        let events = aio.ends(5, SOON)?;
        ensure!(events.len() == 5, "{mode:?}: {events:?}");
        ensure!(events.iter().all(|end| end.result == CANCELED.into()), "{mode:?}: {events:?}");
    }
    Ok(())
}

/// A thread that waits is not cancelled by another descriptor's close, and nor is what another process
/// has pending.
pub fn close_of_another(_: &Path) -> Result<()> {
    let mode = Mode(Completion::Timer, Dispatch::Parallel);
    let nothing = Nothing::set_up(mode.with(5, 200_000_000))?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| nothing.read(&mut [0; 8]));
        until_pending(&nothing, 1)?;
        drop(nothing.another()?);
        ensure!(reader.join().expect("it does not panic")? == 5, "the read was ended");
        anyhow::Ok(())
    })?;
    // In sequence, so that some are pending still when the process has gone.
    let mode = Mode(Completion::Timer, Dispatch::Sequential);
    nothing.set(mode.with(5, MOST_DELAY_NS))?;
    // Kept to the end: it has a descriptor of this process, whose close would end them.
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([CHILD, "inherit", "", "timer", "parallel"])
        .stdin(nothing.another()?.into_stdio());
    let mut ring = Ring::new(8)?;
    ring.submit(nothing.fd(), Operation::Read(8), 3, false)?;
    let status = command.status()?;
    ensure!(status.success(), "the child: {status}");
    let counts = nothing.count()?;
    ensure!(counts.pending > 0 && counts.cancelled == 0, "{counts:?}");
    let ends = ring.ends(3)?;
    ensure!(ends.iter().all(|end| end.result == 5), "{ends:?}");
    drop(command);
    Ok(())
}

/// Starts this program as a process of its own, and waits until it has done what it says.
fn start(arguments: &[&str]) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start this program")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it was asked for")).read_line(&mut line)?;
    ensure!(line == "ready\n", "the child {arguments:?} said {line:?}");
    Ok(child)
}

const WAYS: [&str; 4] = ["ring", "command", "aio", "threads"];

/// A process that exits, or is killed, leaves nothing behind: a queue that would last for minutes is
/// gone at once, and the module can go.
pub fn exit_pending(path: &Path) -> Result<()> {
    let modes = [
        ("timer", "sequential"),
        ("work", "sequential"),
        ("other-cpu", "sequential"),
        ("timer", "parallel"),
    ];
    for (index, (completion, dispatch)) in modes.into_iter().enumerate() {
        for (number, way) in WAYS.into_iter().enumerate() {
            // Each way ends either way in some mode.
            let killed = (index + number) % 2 == 0;
            let what = format!("{way}, {completion}, {dispatch}, killed: {killed}");
            let mut child = start(&["leave", way, completion, dispatch])?;
            refuses("an unload while it runs", module::unload(), libc::EAGAIN)?;
            let begin = Instant::now();
            if killed {
                child.kill()?;
            } else {
                drop(child.stdin.take());
            }
            let status = child.wait()?;
            ensure!(killed || status.success(), "{what}: {status}");
            module::unload_when_free().with_context(|| what.clone())?;
            between(&what, begin.elapsed(), Duration::ZERO, SOON)?;
            module::load(path, "")?;
        }
    }
    Ok(())
}

/// I/O of a registered file whose descriptor is closed is nobody's to cancel: it runs to its end, and
/// only then can the module go.
pub fn exit_registered(path: &Path) -> Result<()> {
    let begin = Instant::now();
    let mut child = start(&["leave", "registered", "timer", "parallel"])?;
    child.kill()?;
    child.wait()?;
    module::unload_when_free()?;
    let (least, most) = (Duration::from_nanos(MOST_DELAY_NS), SOON);
    between("the read of a process that is gone", begin.elapsed(), least, most)?;
    module::load(path, "")?;
    Ok(())
}

/// While a file is open, the module stays.
pub fn unload_while_open(path: &Path) -> Result<()> {
    let nothing = Nothing::open()?;
    refuses("an unload", module::unload(), libc::EAGAIN)?;
    ensure!(nothing.read(&mut [0; 8])? == 0, "the file is not as good as before");
    drop(nothing);
    module::unload()?;
    module::load(path, "")?;
    Ok(())
}

/// Again and again: processes at work in every mode are killed, and the module is unloaded at once.
pub fn unload_after_load(path: &Path) -> Result<()> {
    for mode in MODES {
        for way in WAYS {
            let completion = ["inline", "timer", "work", "other-cpu"][mode.0 as usize];
            let dispatch = ["parallel", "sequential"][mode.1 as usize];
            let mut child = start(&["work", way, completion, dispatch])?;
            // For a moment: what it is in the middle of is as chance has it.
            thread::sleep(Duration::from_millis(50));
            child.kill()?;
            child.wait()?;
            module::unload_when_free()?;
            module::load(path, "")?;
        }
    }
    Ok(())
}

/// Without another CPU there is no interrupt of one: nothing is set to it, and a file that was
/// completes where it is.
pub fn cpu_taken_away(_: &Path) -> Result<()> {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    let mode = Mode(Completion::OtherCpu, Dispatch::Parallel);
    let before = Nothing::set_up(mode.with(1, 0))?;
    fs::write(ONLINE, "0").context("cannot take CPU 1 away")?;
    let result = (|| {
        refuses("another CPU", Nothing::set_up(mode.with(1, 0)), libc::ENXIO)?;
        for _ in 0..100 {
            ensure!(before.read(&mut [0; 8])? == 1);
        }
        let counts = before.count()?;
        ensure!((counts.completed, counts.strayed) == (100, 100), "{counts:?}");
        Ok(())
    })();
    fs::write(ONLINE, "1").context("cannot give CPU 1 back")?;
    result?;
    ensure!(before.read(&mut [0; 8])? == 1);
    ensure!(before.count()?.strayed == 100, "strayed though CPU 1 is back");
    Ok(())
}

/// In a process of its own: `inherit` ends at once; `leave` has I/O pending that would last long, and ends with its input;
/// `work` does I/O until it is killed.
pub fn child(arguments: &[String]) -> Result<()> {
    let [job, way, completion, dispatch] = arguments else {
        bail!("{CHILD} takes a job, a way, a completion and a dispatch");
    };
    let completion = match completion.as_str() {
        "inline" => Completion::Inline,
        "timer" => Completion::Timer,
        "work" => Completion::Work,
        "other-cpu" => Completion::OtherCpu,
        other => bail!("no such completion: {other}"),
    };
    let dispatch = if dispatch == "sequential" { Dispatch::Sequential } else { Dispatch::Parallel };
    let mode = Mode(completion, dispatch);
    match job.as_str() {
        "leave" => leave(mode, way),
        "work" => work(mode, way),
        "inherit" => Ok(()),
        other => bail!("no such job: {other}"),
    }
}

fn ready() -> Result<()> {
    println!("ready");
    io::stdout().flush()?;
    Ok(())
}

fn leave(mode: Mode, way: &str) -> Result<()> {
    const COUNT: usize = 100;
    let nothing = Nothing::set_up(mode.with(1, MOST_DELAY_NS))?;
    let mut ring = Ring::new(COUNT as u32)?;
    let until_told = || -> Result<()> {
        ready()?;
        io::stdin().read_line(&mut String::new())?;
        Ok(())
    };
    match way {
        "ring" => {
            ring.submit(nothing.fd(), Operation::Read(8), COUNT, false)?;
            until_told()
        }
        "command" => {
            ring.submit(nothing.fd(), Operation::Command, COUNT, false)?;
            until_told()
        }
        "registered" => {
            ring.register(nothing.fd())?;
            drop(nothing);
            ring.submit_registered(8)?;
            until_told()
        }
        "aio" => {
            let aio = Aio::read(nothing.fd(), COUNT, 8)?;
            until_told()?;
            // The context goes with the process, which is what is tried.
            std::mem::forget(aio);
            Ok(())
        }
        "threads" => {
            let nothing: &'static Nothing = Box::leak(Box::new(nothing));
            for _ in 0..4 {
                thread::spawn(|| while nothing.read(&mut [0; 8]).is_ok() {});
            }
            // In parallel they may all be between two reads, but not for long.
            until_pending(nothing, 4)?;
            until_told()
        }
        other => bail!("no such way: {other}"),
    }
}

fn work(mode: Mode, way: &str) -> Result<()> {
    let delay = if mode.pends() { 1_000 } else { 0 };
    let nothing = Nothing::set_up(mode.with(1, delay))?;
    let mut ring = Ring::new(64)?;
    ready()?;
    match way {
        "ring" | "command" => {
            let operation = if way == "ring" { Operation::Read(8) } else { Operation::Command };
            ring.submit(nothing.fd(), operation, 64, false)?;
            loop {
                let count = ring.ends(1)?.len();
                ring.submit(nothing.fd(), operation, count, false)?;
            }
        }
        "aio" => loop {
            let mut aio = Aio::read(nothing.fd(), 64, 8)?;
            aio.ends(32, SOON)?;
        },
        "threads" => thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| while nothing.read(&mut [0; 8]).is_ok() {});
            }
            Ok(())
        }),
        other => bail!("no such way: {other}"),
    }
}
