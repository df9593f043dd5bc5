//! The death signal of Linux, its limits of threads, and signals that are passed on.

use super::ThreadsLeft;
use nix::{
    errno::Errno,
    sys::{
        prctl::set_pdeathsig,
        resource::{RLIM_INFINITY, Resource, getrlimit},
        signal::Signal,
    },
    unistd::{getpid, getppid, getuid},
};
use std::{
    fs,
    io::{self, BufRead as _},
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicI32, Ordering},
};

pub(super) fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let in_the_child = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            // It ended before the signal was asked for, so nobody will send it.
            return Err(Errno::ESRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls that are safe there; it
    // takes no lock and allocates nothing.
    unsafe { command.pre_exec(in_the_child) };
}

/// The most slots that are asked for, of 64 bytes each.
const MOST_SLOTS: u32 = 8192;

pub(super) fn expect_threads(count: u32) {
    const SET_SLOTS: libc::c_ulong = 1;
    let wanted = count.min(MOST_SLOTS).next_power_of_two();
    if slots().is_some_and(|has| has < wanted) {
        // Where it fails, waking a thread takes longer.
        futex_hash(SET_SLOTS, wanted.into());
    }
}

/// Slots of this process for threads that wait; `None` on a kernel before 6.17.
pub(super) fn slots() -> Option<u32> {
    const GET_SLOTS: libc::c_ulong = 2;
    u32::try_from(futex_hash(GET_SLOTS, 0)).ok()
}

fn futex_hash(ask: libc::c_ulong, slots: libc::c_ulong) -> libc::c_int {
    const PR_FUTEX_HASH: libc::c_int = 78; // in <linux/prctl.h>
    // SAFETY: prctl with PR_FUTEX_HASH takes numbers and touches no memory. A kernel that does not know it fails it.
    unsafe { libc::prctl(PR_FUTEX_HASH, ask, slots, 0 as libc::c_ulong) }
}

/// Mappings of a thread: its stack and the page that guards it, and the same again for its signals (sigaltstack(2)).
pub(super) const MAPPINGS_OF_A_THREAD: u64 = 4;

/// One in so many of the mappings that a process may have is left for memory that is asked for later.
const KEPT: u64 = 16;

pub(super) fn threads_left() -> Option<ThreadsLeft> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = of_the_groups(Path::new("/sys/fs/cgroup"), &groups);
    let limits = [of_mappings(), of_the_system(), of_the_user(), group];
    limits.into_iter().flatten().min_by_key(|left| left.count)
}

fn left(name: &str, limit: u64, count: u64) -> ThreadsLeft {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    ThreadsLeft { count, limit: format!("{name} = {limit}") }
}

fn of_mappings() -> Option<ThreadsLeft> {
    let most = number(Path::new("/proc/sys/vm/max_map_count"))?;
    let free = (most - most / KEPT).saturating_sub(mappings().ok()?);
    Some(left("vm.max_map_count", most, free / MAPPINGS_OF_A_THREAD))
}

/// Mappings that this process has.
pub(super) fn mappings() -> io::Result<u64> {
    // It is read in pieces: it may be longer than one would take at a time.
    let mut lines = io::BufReader::new(fs::File::open("/proc/self/maps")?).split(b'\n');
    lines.try_fold(0, |count, line| line.map(|_| count + 1))
}

/// Threads, and numbers for them, of all processes together.
fn of_the_system() -> Option<ThreadsLeft> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let threads: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    let limit = |name: &str| {
        let most = number(&Path::new("/proc/sys/kernel").join(name))?;
        Some(left(&format!("kernel.{name}"), most, most.saturating_sub(threads)))
    };
    ["threads-max", "pid_max"].into_iter().filter_map(limit).min_by_key(|left| left.count)
}

/// Of the threads of a user only those of this process are known, which may be less than all.
fn of_the_user() -> Option<ThreadsLeft> {
    let (most, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    if getuid().is_root() || most == RLIM_INFINITY {
        return None; // it does not hold for root
    }
    let threads = fs::read_dir("/proc/self/task").ok()?.count() as u64;
    Some(left("RLIMIT_NPROC", most, most.saturating_sub(threads)))
}

/// The control groups that the process is in, of both versions: each, and those that it lies in, may have a limit.
fn of_the_groups(root: &Path, groups: &str) -> Option<ThreadsLeft> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let hierarchy = match controllers {
            "" => Some(root.to_path_buf()),
            "pids" => Some(root.join("pids")),
            _ => None,
        };
        hierarchy.into_iter().flat_map(move |hierarchy| {
            Path::new(path).ancestors().filter_map(move |group| {
                let group = hierarchy.join(group.strip_prefix("/").unwrap_or(group));
                let most = number(&group.join("pids.max"))?;
                let threads = number(&group.join("pids.current"))?;
                Some(left("pids.max", most, most.saturating_sub(threads)))
            })
        })
    });
    limits.min_by_key(|left| left.count)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The process that signals are passed on to; 0 while there is none.
static PASSED_TO: AtomicI32 = AtomicI32::new(0);
/// A signal that came when there was none; 0 for no signal.
static CAME_BEFORE: AtomicI32 = AtomicI32::new(0);

pub(super) fn pass_signals_on() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: a sigaction of zeroes is valid: no flags, and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = pass_on;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the action is complete, its handler makes only calls that are safe in one, and the old one is not
        // asked for.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

pub(super) fn pass_signals_to(child: Option<u32>) {
    let child = child.and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
    PASSED_TO.store(child, Ordering::SeqCst);
    if child != 0 {
        send(child, CAME_BEFORE.swap(0, Ordering::SeqCst));
    }
}

extern "C" fn pass_on(signal: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo_t that is valid while the handler runs.
    let code = unsafe { (*about).si_code };
    // The kernel's own are above 0, those of kill(2), sigqueue(3) and tgkill(2) are not.
    if code > 0 {
        return;
    }
    match PASSED_TO.load(Ordering::SeqCst) {
        0 => {
            CAME_BEFORE.store(signal, Ordering::SeqCst);
            // It may have come between the two steps of whoever names the process.
            let child = PASSED_TO.load(Ordering::SeqCst);
            if child != 0 {
                send(child, CAME_BEFORE.swap(0, Ordering::SeqCst));
            }
        }
        child => send(child, signal),
    }
}

/// Sends a signal, if it is one; changes no errno, as it may interrupt whoever reads that.
fn send(child: i32, signal: libc::c_int) {
    if signal == 0 {
        return;
    }
    // SAFETY: it points to this thread's errno, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: see above; the read is of a plain integer of this thread.
    let before = unsafe { *errno };
    // SAFETY: kill takes two numbers. It fails where the process has gone meanwhile.
    unsafe { libc::kill(child, signal) };
    // SAFETY: as for the read.
    unsafe { *errno = before };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_control_group_counts() {
        let root = std::env::temp_dir().join(format!("weir-groups-{}", std::process::id()));
        let group = |path: &str, most: &str, now: &str| {
            let path = root.join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("pids.max"), most).unwrap();
            fs::write(path.join("pids.current"), now).unwrap();
        };
        group("a/b", "max\n", "5\n");
        group("a", "100\n", "40\n");
        group("pids/c", "30\n", "31\n");
        let of = |groups: &str| of_the_groups(&root, groups);
        let of_a = ThreadsLeft { count: 60, limit: "pids.max = 100".into() };
        assert_eq!(of("0::/a/b\n"), Some(of_a.clone()));
        assert_eq!(of("1:cpu:/c\n0::/a\n"), Some(of_a));
        assert_eq!(of("8:pids:/c/d\n0::/a\n").map(|left| left.count), Some(0));
        assert_eq!(of("0::/\nnonsense\n"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
