//! Setting a ring up: sets of flags from best to least, by trying, never by kernel version; and
//! why io_uring cannot be used, with what to do about it.

use crate::{Unavailable, privilege};
use io_uring::IoUring;
use std::{fmt, io};

/// Flags of io_uring_setup(2) that a set may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "these are the kernel's names")]
pub(crate) enum Flag {
    SingleIssuer,
    DeferTaskrun,
    CoopTaskrun,
    TaskrunFlag,
    SubmitAll,
    NoSqarray,
    Sqpoll,
}

/// The flags of one ring beside CQSIZE, CLAMP and R_DISABLED, which every ring here has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(&'static [Flag]);

impl Flags {
    pub fn contains(self, flag: Flag) -> bool {
        self.0.contains(&flag)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for flag in self.0 {
            f.write_str(match flag {
                Flag::SingleIssuer => "SINGLE_ISSUER|",
                Flag::DeferTaskrun => "DEFER_TASKRUN|",
                Flag::CoopTaskrun => "COOP_TASKRUN|",
                Flag::TaskrunFlag => "TASKRUN_FLAG|",
                Flag::SubmitAll => "SUBMIT_ALL|",
                Flag::NoSqarray => "NO_SQARRAY|",
                Flag::Sqpoll => "SQPOLL|",
            })?;
        }
        f.write_str("CQSIZE|CLAMP|R_DISABLED")
    }
}

/// How a ring will be used; it decides which flags are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// By one thread, which gets what arrived when it enters the kernel.
    Deferred,
    /// By one thread, which the kernel interrupts for what arrived.
    Interrupt,
    /// By several threads: no flag that binds it to one.
    Shared,
    /// By several threads, each of which enters the kernel or parks between two operations, and is not
    /// interrupted for what its own operations have to do: that waits until then, or for the next tick of
    /// the clock.
    SharedUninterrupted,
    /// With a thread of the kernel that submits and receives; used by one thread.
    KernelThread,
    /// The same, with that thread on this core: of itself it runs on every core, whatever the program keeps to.
    KernelThreadOn(u32),
    /// As `KernelThread`, used by several threads.
    SharedKernelThread,
}

/// What a ring is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How it will be used.
    pub r#use: Use,
    /// Entries of the submission queue; a power of two is obtained.
    pub submissions: u32,
    /// Entries of the completion queue; a power of two is obtained.
    pub completions: u32,
    /// The first Linux on which whoever wants it can run: what is advised where this one is too old.
    pub kernel: &'static str,
}

/// After this many milliseconds without work the kernel's submission thread sleeps. It polls
/// until then: long enough to stay awake under load, short enough to leave an idle core alone.
const KERNEL_THREAD_IDLE_MS: u32 = 10;

impl Use {
    fn has_kernel_thread(self) -> bool {
        matches!(self, Use::KernelThread | Use::KernelThreadOn(_) | Use::SharedKernelThread)
    }

    fn sets(self) -> &'static [&'static [Flag]] {
        use Flag::{
            CoopTaskrun, DeferTaskrun, NoSqarray, SingleIssuer, Sqpoll, SubmitAll, TaskrunFlag,
        };
        match self {
            Use::Deferred => &[
                &[SingleIssuer, DeferTaskrun, TaskrunFlag, SubmitAll, NoSqarray],
                &[SingleIssuer, DeferTaskrun, TaskrunFlag, SubmitAll],
                &[SingleIssuer, CoopTaskrun, TaskrunFlag, SubmitAll],
                &[CoopTaskrun, TaskrunFlag, SubmitAll],
                &[SubmitAll],
                &[],
            ],
            Use::Interrupt => &[
                &[SingleIssuer, SubmitAll, NoSqarray],
                &[SingleIssuer, SubmitAll],
                &[SubmitAll],
                &[],
            ],
            Use::Shared => &[&[SubmitAll, NoSqarray], &[SubmitAll], &[]],
            Use::SharedUninterrupted => &[
                &[CoopTaskrun, SubmitAll, NoSqarray],
                &[CoopTaskrun, SubmitAll],
                &[SubmitAll],
                &[],
            ],
            Use::KernelThread | Use::KernelThreadOn(_) => &[
                &[Sqpoll, SingleIssuer, SubmitAll, NoSqarray],
                &[Sqpoll, SingleIssuer, SubmitAll],
                &[Sqpoll, SubmitAll],
                &[Sqpoll],
            ],
            Use::SharedKernelThread => {
                &[&[Sqpoll, SubmitAll, NoSqarray], &[Sqpoll, SubmitAll], &[Sqpoll]]
            }
        }
    }
}

/// Sets a ring up, disabled, with the best set of flags that this system takes. `what` names
/// who needs it ("provider uring").
///
/// # Errors
/// [`Unavailable`] with what io_uring_setup(2) answered, and what to do.
pub(crate) fn set_up(what: &str, wanted: &Wanted) -> Result<(IoUring, Flags), Unavailable> {
    let (ring, flags) = on_a_thread_of_its_own(|| {
        if wanted.r#use.has_kernel_thread() {
            // The kernel's thread does whatever is submitted with the credentials of this one, for
            // as long as the ring lives; it needs no privilege.
            privilege::give_up()?;
        }
        try_sets(wanted.r#use, |flags| build(wanted, flags))
    })
    .and_then(|made| made)
    .map_err(|e| explain(what, &e, sysctl().as_deref(), wanted.kernel))?;
    let params = ring.params();
    // Of Linux 5.5, 5.5, 5.11 and 5.17.
    for (there, name) in [
        (params.is_feature_nodrop(), "IORING_FEAT_NODROP"),
        (params.is_feature_submit_stable(), "IORING_FEAT_SUBMIT_STABLE"),
        (params.is_feature_ext_arg(), "IORING_FEAT_EXT_ARG"),
        (params.is_feature_skip_cqe_on_success(), "IORING_FEAT_CQE_SKIP"),
    ] {
        if !there {
            let reason = format!("this kernel's io_uring has no {name}");
            return Err(Unavailable::new(what, reason).advise(use_a_kernel(wanted.kernel)));
        }
    }
    Ok((ring, flags))
}

/// Tries what rings can do, where the caller shall not be interrupted by it ([`on_a_thread_of_its_own`]).
pub(crate) fn proved(
    prove: impl FnOnce() -> Result<(), Unavailable> + Send,
) -> Result<(), Unavailable> {
    let no_thread = |e| Err(Unavailable::new("io_uring", format!("starting a thread: {e}")));
    on_a_thread_of_its_own(prove).unwrap_or_else(no_thread)
}

/// When a ring goes, the kernel interrupts every thread that made it or submitted to it, some
/// time later: a call of that thread with a time limit (a receive with SO_RCVTIMEO, epoll_wait)
/// then fails with EINTR. The thread of the program that starts a server shall not see that.
fn on_a_thread_of_its_own<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let (mut work, mut result) = (Some(work), None);
    run_on_a_thread(&mut || result = work.take().map(|work| work()))?;
    Ok(result.expect("the thread has run it"))
}

/// Compiled once for all that runs so.
fn run_on_a_thread(work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(())
    })
}

/// Tries sets of flags from best to least. A set that the kernel does not know answers EINVAL;
/// any other answer would be the same for the next set.
fn try_sets<R>(r#use: Use, mut call: impl FnMut(Flags) -> io::Result<R>) -> io::Result<(R, Flags)> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for &set in r#use.sets() {
        match call(Flags(set)) {
            Ok(ring) => return Ok((ring, Flags(set))),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

fn build(wanted: &Wanted, flags: Flags) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(wanted.completions).setup_clamp().setup_r_disabled().dontfork();
    for flag in flags.0 {
        match flag {
            Flag::SingleIssuer => builder.setup_single_issuer(),
            Flag::DeferTaskrun => builder.setup_defer_taskrun(),
            Flag::CoopTaskrun => builder.setup_coop_taskrun(),
            Flag::TaskrunFlag => builder.setup_taskrun_flag(),
            Flag::SubmitAll => builder.setup_submit_all(),
            Flag::NoSqarray => builder.setup_no_sqarray(),
            Flag::Sqpoll => builder.setup_sqpoll(KERNEL_THREAD_IDLE_MS),
        };
    }
    if let Use::KernelThreadOn(core) = wanted.r#use {
        builder.setup_sqpoll_cpu(core);
    }
    builder.build(wanted.submissions)
}

/// The system's own switch for io_uring, where it has one (since Linux 6.6).
fn sysctl() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()
}

/// What to do where the kernel is too old for what is to run.
pub(crate) fn use_a_kernel(since: &str) -> String {
    format!("it needs Linux {since} or later: use such a kernel, or another provider")
}

/// Says why io_uring cannot be used, from what io_uring_setup(2) answered and the contents of
/// the sysctl; and what the oldest kernel is.
fn explain(what: &str, cause: &io::Error, sysctl: Option<&str>, kernel: &str) -> Unavailable {
    let answer = |why: &str| Unavailable::new(what, format!("io_uring_setup: {cause}: {why}"));
    match (cause.raw_os_error(), sysctl.map(str::trim)) {
        (Some(libc::EPERM), Some("2")) => answer("the sysctl kernel.io_uring_disabled is 2")
            .advise("allow it with `sysctl kernel.io_uring_disabled=0` (as root)"),
        (Some(libc::EPERM), Some("1")) => {
            answer("the sysctl kernel.io_uring_disabled is 1, and this user is not in its group")
                .advise(
                    "allow it with `sysctl kernel.io_uring_disabled=0` (as root), or join the \
                     group named in kernel.io_uring_group",
                )
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            answer("a seccomp filter or a security module forbids it").advise(
                "containers forbid io_uring by default: allow it in the container's seccomp \
                 profile, or run outside it",
            )
        }
        (Some(libc::ENOSYS), _) => answer("this kernel was built without io_uring")
            .advise("use a kernel with CONFIG_IO_URING, or another provider"),
        (Some(libc::ENOMEM), _) => {
            answer("the limit for locked memory, or memory itself, is used up")
                .advise("raise the limit (`ulimit -l`), or ask for fewer outstanding receives")
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => answer("no descriptor is left")
            .advise("raise the limit (`ulimit -n`), or use fewer queues"),
        (Some(libc::EINVAL), _) => {
            answer("this kernel's io_uring is too old for completion queues of a chosen size")
                .advise(use_a_kernel(kernel))
        }
        _ => Unavailable::new(what, format!("io_uring_setup: {cause}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    #[test]
    fn the_best_known_set_is_taken() {
        let mut tried = Vec::new();
        let (_, flags) = try_sets(Use::Deferred, |flags| {
            tried.push(flags.to_string());
            let known = !flags.contains(Flag::NoSqarray) && !flags.contains(Flag::DeferTaskrun);
            if known { Ok(()) } else { Err(errno(libc::EINVAL)) }
        })
        .unwrap();
        assert_eq!(tried.len(), 3);
        let text = "SINGLE_ISSUER|COOP_TASKRUN|TASKRUN_FLAG|SUBMIT_ALL|CQSIZE|CLAMP|R_DISABLED";
        assert_eq!(flags.to_string(), text);
    }

    #[test]
    fn a_refusal_is_not_tried_again() {
        for number in [libc::EPERM, libc::ENOSYS, libc::ENOMEM, libc::EMFILE] {
            let mut calls = 0;
            let error = try_sets(Use::Shared, |_| {
                calls += 1;
                Err::<(), _>(errno(number))
            })
            .unwrap_err();
            assert_eq!((calls, error.raw_os_error()), (1, Some(number)));
        }
    }

    #[test]
    fn a_kernel_that_knows_no_set_says_einval() {
        for r#use in [
            Use::Deferred,
            Use::Interrupt,
            Use::Shared,
            Use::SharedUninterrupted,
            Use::KernelThread,
            Use::KernelThreadOn(0),
            Use::SharedKernelThread,
        ] {
            let error = try_sets(r#use, |_| Err::<(), _>(errno(libc::EINVAL))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }

    #[test]
    fn sets_used_by_several_threads_bind_no_thread() {
        for r#use in [Use::Shared, Use::SharedUninterrupted, Use::SharedKernelThread] {
            for set in r#use.sets() {
                for flag in [Flag::SingleIssuer, Flag::DeferTaskrun] {
                    assert!(!Flags(set).contains(flag), "{}", Flags(set));
                }
                let waits = r#use == Use::SharedUninterrupted;
                assert!(waits || !Flags(set).contains(Flag::CoopTaskrun), "{}", Flags(set));
            }
        }
    }

    #[test]
    fn every_refusal_says_why_and_what_to_do() {
        for (number, sysctl, why, what_to_do) in [
            (
                libc::EPERM,
                Some("2\n"),
                "io_uring_disabled is 2",
                "sysctl kernel.io_uring_disabled=0",
            ),
            (libc::EPERM, Some("1\n"), "io_uring_disabled is 1", "kernel.io_uring_group"),
            (libc::EPERM, Some("0\n"), "seccomp", "container"),
            (libc::EPERM, None, "seccomp", "container"),
            (libc::EACCES, None, "security module", "container"),
            (libc::ENOSYS, None, "without io_uring", "CONFIG_IO_URING"),
            (libc::ENOMEM, None, "locked memory", "ulimit -l"),
            (libc::EMFILE, None, "no descriptor", "ulimit -n"),
            (libc::EINVAL, None, "too old", "Linux 6.0"),
        ] {
            let said = explain("provider uring", &errno(number), sysctl, "6.0");
            assert_eq!(said.what, "provider uring");
            assert!(said.reason.contains(why), "{said}");
            assert!(said.reason.contains(&format!("os error {number}")), "{said}");
            assert!(said.advice.as_deref().unwrap().contains(what_to_do), "{said}");
        }
        assert!(explain("x", &errno(libc::EIO), None, "6.0").reason.contains("os error 5"));
    }
}
