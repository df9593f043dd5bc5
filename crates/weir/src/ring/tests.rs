//! The ring against the kernel it runs on.

use super::*;
use crate::{counters::Counters, required::cannot_run, rio::Woken};
use io_uring::opcode;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Instant,
};

const ALARM: Token = Token::bare(1);
const CANCEL: Token = Token::bare(2);
const EVERY_USE: [Use; 6] = [
    Use::Deferred,
    Use::Interrupt,
    Use::Shared,
    Use::SharedUninterrupted,
    Use::KernelThread,
    Use::SharedKernelThread,
];

fn ring(r#use: Use, submissions: u32) -> (Arc<Ring>, Submissions, Completions) {
    let wanted = Wanted { r#use, submissions, completions: 8 * submissions, kernel: "6.0" };
    let (io, flags) = set_up("the test", &wanted).unwrap();
    let (ring, submissions, completions) = Ring::split(io, flags);
    ring.enable().unwrap();
    (ring, submissions, completions)
}

/// Where one use cannot run, none of the tests is run: most go through all of them.
fn cannot_run_here() -> bool {
    EVERY_USE.into_iter().any(|r#use| {
        let wanted = Wanted { r#use, submissions: 2, completions: 16, kernel: "6.0" };
        cannot_run("uring", set_up("the test", &wanted))
    })
}

fn no_op(token: Token) -> io_uring::squeue::Entry {
    opcode::Nop::new().build().user_data(token.user_data())
}

/// Waits until the kernel has taken every entry; its thread, where there is one, takes them in
/// its own time, and a wait for a completion is what tells.
fn wait_for(ring: &Ring, completions: &mut Completions, at_least: u32) -> Vec<(Token, i32)> {
    let mut got = Vec::new();
    while got.len() < at_least as usize {
        let missing = at_least - got.len() as u32;
        let entered = ring.enter(0, missing, Some(Duration::from_secs(60)), false).unwrap();
        assert_ne!(entered, Entered::TimedOut);
        got.extend(completions.take().map(|e| (Token::from_user_data(e.user_data()), e.result())));
    }
    got
}

#[test]
fn every_use_submits_and_completes() {
    if cannot_run_here() {
        return;
    }
    for r#use in EVERY_USE {
        let (ring, mut submissions, mut completions) = ring(r#use, 8);
        let counters = Counters::default();
        let mut slots = Slots::new(9, 4);
        let token = slots.insert(()).unwrap();
        // SAFETY: a no-op points at nothing.
        unsafe { submissions.push(&[no_op(token)]) }.unwrap();
        submissions.submit(&counters).unwrap();
        assert_eq!(wait_for(&ring, &mut completions, 1), [(token, 0)], "{use:?}");
        assert!(ring.flags().contains("SUBMIT_ALL"), "{}", ring.flags());
    }
}

#[test]
fn a_cancel_finds_room_in_a_full_queue() {
    if cannot_run_here() {
        return;
    }
    let (ring, mut submissions, mut completions) = ring(Use::Deferred, 8);
    let counters = Counters::default();
    let alarm = Alarm::new().unwrap();
    // SAFETY: the alarm points at a static, and no-ops at nothing.
    unsafe { submissions.push(&alarm.entries(ALARM)) }.unwrap();
    submissions.submit(&counters).unwrap();
    let mut pushed = 0;
    // SAFETY: as above.
    while unsafe { submissions.push(&[no_op(Token::bare(3))]) }.is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, 7, "one of the 8 entries is held back");
    let entries = counters.kernel_entries.get();
    submissions.cancel(ALARM, CANCEL, &counters).unwrap();
    assert_eq!(counters.kernel_entries.get(), entries + 1, "nothing had to be submitted first");
    assert_eq!(submissions.pending(), 0);
    // The kernel passes over the completion of what was linked behind a failed entry that would
    // have been silent.
    let got = wait_for(&ring, &mut completions, 7 + 2);
    assert!(got.contains(&(CANCEL, 0)), "{got:?}");
    assert!(got.contains(&(ALARM, -libc::ECANCELED)), "{got:?}");
}

#[test]
fn a_push_waits_for_the_kernels_thread_to_make_room() {
    if cannot_run_here() {
        return;
    }
    let (_ring, mut submissions, mut completions) = ring(Use::KernelThread, 8);
    let counters = Counters::default();
    let (mut pushed, mut over) = (0, 0);
    while over < 10_000 {
        if pushed < 10_000 && pushed - over < 32 {
            // SAFETY: a no-op points at nothing.
            unsafe { submissions.push(&[no_op(Token::bare(3))]) }.expect("its thread takes them");
            pushed += 1;
        } else {
            submissions.submit(&counters).unwrap();
            thread::yield_now();
        }
        over += completions.take().count();
    }
    assert_eq!(pushed, over);
}

extern "C" fn nothing(_: libc::c_int) {}

/// A wait for room ends early by a signal, as by work that the kernel has for the thread.
#[test]
fn a_cancel_waits_for_room_though_signals_come() {
    if cannot_run_here() {
        return;
    }
    let (_ring, mut submissions, mut completions) = ring(Use::KernelThread, 8);
    let counters = Counters::default();
    // SAFETY: zeroes are a value of it, and of its mask; the handler does nothing, and may interrupt calls.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
    // SAFETY: takes no pointers.
    let this = unsafe { libc::pthread_self() };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                // SAFETY: that thread waits for this one's end.
                unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
            }
        });
        let mut refused = 0;
        for _ in 0..1000 {
            refused += u32::from(submissions.cancel(Token::bare(3), CANCEL, &counters).is_err());
            completions.take().for_each(drop);
        }
        over.store(true, Relaxed);
        assert_eq!(refused, 0);
    });
}

/// Arms the alarm, and once it went off forgets that it did.
fn arm(alarm: &Alarm, submissions: &mut Submissions, counters: &Counters) {
    alarm.reset();
    // SAFETY: the alarm points at a static.
    unsafe { submissions.push(&alarm.entries(ALARM)) }.unwrap();
    submissions.submit(counters).unwrap();
}

#[test]
fn a_waker_ends_a_wait_for_one_and_for_many() {
    if cannot_run_here() {
        return;
    }
    for r#use in EVERY_USE {
        let (ring, mut submissions, mut completions) = ring(r#use, 8);
        let counters = Counters::default();
        let alarm = Alarm::new().unwrap();
        for at_least in [1, 5, 1, 5] {
            arm(&alarm, &mut submissions, &counters);
            let waker = alarm.waker();
            let other = thread::spawn(move || waker.wake());
            let woken = alarm.wait(&ring, &mut completions, at_least, None, &counters).unwrap();
            assert_eq!(woken, Woken::ByWaker, "{use:?}");
            assert!(!alarm.was_asked(), "it says so once");
            other.join().unwrap();
            let got = wait_for(&ring, &mut completions, 1);
            assert_eq!(got, [(ALARM, -libc::ETIME)], "one completion for both entries");
        }
    }
}

#[test]
fn a_ring_of_the_alarm_ends_a_wait_early() {
    if cannot_run_here() {
        return;
    }
    let (ring, mut submissions, mut completions) = ring(Use::Shared, 8);
    let counters = Counters::default();
    let alarm = Arc::new(Alarm::new().unwrap());
    arm(&alarm, &mut submissions, &counters);
    let other = thread::spawn({
        let alarm = Arc::clone(&alarm);
        move || alarm.raise()
    });
    let woken = alarm.wait(&ring, &mut completions, 1, None, &counters).unwrap();
    assert_eq!((woken, completions.len()), (Woken::Ready, 1));
    other.join().unwrap();
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    if cannot_run_here() {
        return;
    }
    for (r#use, at_least) in [(Use::Deferred, 1), (Use::Shared, 1), (Use::Deferred, 3)] {
        let (ring, mut submissions, mut completions) = ring(r#use, 8);
        let (alarm, counters) = (Alarm::new().unwrap(), Counters::default());
        for (there, time_ms) in [(0, 0), (0, 3), (1, 0), (1, 45)] {
            if there == 1 {
                // SAFETY: a no-op points at nothing.
                unsafe { submissions.push(&[no_op(CANCEL)]) }.unwrap();
                submissions.submit(&counters).unwrap();
            }
            let (began, time) = (Instant::now(), Duration::from_millis(time_ms));
            let woken =
                alarm.wait(&ring, &mut completions, at_least, Some(time), &counters).unwrap();
            let full = at_least == 1 && there == 1;
            assert!(full || began.elapsed() >= time, "{use:?} {at_least} {there} {time_ms}");
            assert_eq!(woken, if there == 0 { Woken::TimedOut } else { Woken::Ready });
            assert_eq!(completions.take().count(), there);
        }
    }
}

#[test]
fn a_ring_bound_to_one_thread_refuses_another() {
    if cannot_run_here() {
        return;
    }
    let (ring, _submissions, _completions) = ring(Use::Deferred, 8);
    let refused = thread::spawn(move || ring.enter(1, 0, None, false)).join().unwrap();
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EEXIST));
}

#[test]
fn the_kernels_thread_runs_on_the_core_that_it_is_given() {
    if cannot_run_here() {
        return;
    }
    let core = *crate::affinity::allowed_cores().last().unwrap();
    let (ring, mut submissions, mut completions) = ring(Use::KernelThreadOn(core as u32), 8);
    // SAFETY: a no-op points at nothing.
    unsafe { submissions.push(&[no_op(ALARM)]) }.unwrap();
    submissions.submit(&Counters::default()).unwrap();
    // What it has answered it has begun.
    assert_eq!(wait_for(&ring, &mut completions, 1), [(ALARM, 0)]);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        status.starts_with("Name:\tiou-sqp").then_some(status)
    });
    let own = format!("Cpus_allowed_list:\t{core}\n");
    let threads: Vec<String> = threads.collect();
    assert!(threads.iter().any(|status| status.contains(&own)), "{core}: {threads:?}");
}
