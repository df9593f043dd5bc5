//! The confinement itself: resource limits, capabilities, and a filter of system calls, set in the
//! child between fork and exec.

use std::{io, mem::offset_of, os::unix::process::CommandExt as _, process::Command};

/// What a limit is put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Open descriptors, by their highest number plus one.
    Descriptors,
    /// Locked memory in bytes.
    LockedMemory,
    /// Address space in bytes.
    AddressSpace,
}

impl Resource {
    fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::Descriptors => libc::RLIMIT_NOFILE,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK,
            Self::AddressSpace => libc::RLIMIT_AS,
        }
    }
}

/// What a program is to do without.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    filters: Vec<Filter>,
    limits: Vec<(Resource, u64)>,
    unprivileged: bool,
}

/// A program for the kernel's packet filter, made before the fork.
type Filter = Vec<libc::sock_filter>;

/// The calls of io_uring.
const IO_URING: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

impl Confinement {
    /// Nothing is taken away yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every call of io_uring answers this error number, as a container's filter (EPERM) or a
    /// kernel without it (ENOSYS) does.
    pub fn forbid_io_uring(mut self, errno: i32) -> Self {
        self.filters.push(filter(&IO_URING, errno));
        self
    }

    /// Every attempt to bind a thread to cores answers this error number, as a container's filter (EPERM) or
    /// a kernel that has no such thing (EINVAL, ENOSYS) does.
    pub fn forbid_affinity(mut self, errno: i32) -> Self {
        self.filters.push(filter(&[libc::SYS_sched_setaffinity], errno));
        self
    }

    /// At most so much of a resource.
    pub fn limit(mut self, resource: Resource, most: u64) -> Self {
        self.limits.push((resource, most));
        self
    }

    /// No privilege, also where the test runs as root: its files stay in reach, but ports below
    /// 1024 and memory beyond the limits do not.
    pub fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// Puts it on a program that is not started yet. Starting it fails where the system refuses
    /// a part of it.
    pub fn confine(self, command: &mut Command) -> &mut Command {
        // SAFETY: between fork and exec it only makes system calls; it takes no memory and no
        // lock.
        unsafe { command.pre_exec(move || self.enter()) }
    }

    /// Puts it on this process, for good.
    fn enter(&self) -> io::Result<()> {
        if self.unprivileged {
            drop_privileges()?;
        }
        for &(resource, most) in &self.limits {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the limit lives through the call.
            check(unsafe { libc::setrlimit(resource.number(), &limit) })?;
        }
        self.filters.iter().try_for_each(|filter| install(filter))
    }
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Empties the set of capabilities that root gets at the next exec. Others get none anyway.
fn drop_privileges() -> io::Result<()> {
    // SAFETY: asks for the user alone.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    for capability in 0.. {
        // SAFETY: asks whether a capability is in the set; the kernel refuses numbers that it
        // does not know.
        match unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability as libc::c_ulong) } {
            // SAFETY: takes it out of the set.
            1 => check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong) })?,
            0 => {}
            _ => break,
        }
    }
    Ok(())
}

/// A program that looks at the number of the call, and refuses these.
fn filter(calls: &[libc::c_long], errno: i32) -> Filter {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let number = offset_of!(libc::seccomp_data, nr) as u32;
    // To the last statement if it is this call, which is `distance` statements after the next.
    let refuse = |call: libc::c_long, distance: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: distance,
        jf: 0,
        k: call as u32,
    };
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut program = vec![statement(load, number)];
    program
        .extend((1..=calls.len()).rev().zip(calls).map(|(left, call)| refuse(*call, left as u8)));
    program.push(statement(answer, libc::SECCOMP_RET_ALLOW));
    program.push(statement(answer, libc::SECCOMP_RET_ERRNO | errno as u32));
    program
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the first call asks for what an unprivileged process needs for the second, and
    // that one reads a program that lives through it.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(confinement: Confinement, name: &str) -> String {
        let output = confinement
            .confine(Command::new("cat").arg("/proc/self/status"))
            .output()
            .expect("cat runs");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).expect("it has that line");
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_filter_is_installed() {
        assert_eq!(status_of(Confinement::new(), "Seccomp:"), "0");
        assert_eq!(status_of(Confinement::new().forbid_io_uring(libc::EPERM), "Seccomp:"), "2");
        let both = Confinement::new().forbid_io_uring(libc::EPERM).forbid_affinity(libc::EINVAL);
        assert_eq!(status_of(both, "Seccomp_filters:"), "2");
    }

    #[test]
    fn no_privilege_is_left() {
        let capabilities = status_of(Confinement::new().unprivileged(), "CapEff:");
        assert_eq!(u64::from_str_radix(&capabilities, 16), Ok(0));
    }

    #[test]
    fn limits_are_set() {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n; ulimit -l; ulimit -v"]);
        let confinement = Confinement::new()
            .limit(Resource::Descriptors, 13)
            .limit(Resource::LockedMemory, 4096)
            .limit(Resource::AddressSpace, 1 << 30);
        let output = confinement.confine(&mut command).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "13\n4\n1048576\n");
    }
}
