//! A tree of processes on Linux: a control group (cgroups(7), version 2) where one may be made, which nothing that
//! is started in it leaves, and which counts the CPU time of all, also of those that have ended; else the
//! descendants as `/proc` tells them. Those whose parent ends come to this process, which is made their reaper
//! (`prctl(2)`, PR_SET_CHILD_SUBREAPER).
//!
//! Each process of a tree has a word in its environment, by which it is found when all its ancestors have gone.
//!
//! Where the process that owns a tree is killed itself, the root ends with it
//! ([`end_with_this_thread`](crate::process::end_with_this_thread)); other processes and the group stay until the
//! next tree is made in the same control group, which kills those and removes that.

use nix::{
    errno::Errno,
    sys::{
        prctl::set_child_subreaper,
        signal::{self, Signal},
    },
    time::ClockId,
    unistd::{Pid, SysconfVar, sysconf},
};
use std::{
    collections::HashSet,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::{fs::MetadataExt as _, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use super::TreeUsage;
use crate::counters::os::{OfThread, OtherProcess, ProcessUsage};

/// The variable of the environment by which the processes of a tree are known.
pub(super) const MARK: &str = "WEIR_PROCESS_TREE";
/// What the names of groups begin with.
const GROUP: &str = "weir-";
/// How long processes that were killed may take to go; one that waits for a device may take longer.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// How often is looked whether they have. There is no event for all of them.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often a reading is made again in which processes came or went.
const TRIES: usize = 5;
/// The signal of a child's end as a bit of those that are ignored.
const CHILD_ENDED: u64 = 1 << (libc::SIGCHLD - 1);

#[derive(Debug)]
pub(super) struct Tree {
    mark: String,
    group: Option<Group>,
    root: u32,
    /// When it began: once its owner has waited for it, its number may be another program's.
    root_began: Option<u64>,
    /// All that were there at the last look, the root among them.
    known: HashSet<u32>,
    /// What those used that came to this process and have ended.
    reaped: Used,
    /// How many have ended, as far as it was noticed.
    ended: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    cpu_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

/// A control group of one's own.
#[derive(Debug)]
struct Group(PathBuf);

/// Who made a tree, as its mark says it.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    id: u32,
    /// Where that number holds: the inode of a namespace of processes.
    namespace: u64,
    /// When the tree was made. A process that began later has taken over the number of one that has gone.
    ticks: u64,
}

/// Flags of a process in `/proc/PID/stat` (`include/linux/sched.h`).
const PF_EXITING: u64 = 0x4;
const PF_KTHREAD: u64 = 0x20_0000;

/// What `/proc/PID/stat` says.
struct Stat {
    state: u8,
    parent: u32,
    /// It has no environment yet, not even an empty one.
    is_starting: bool,
    /// Page faults of children that were waited for: as good as a count of them, since none ends without.
    faults_of_children: u64,
    /// Their CPU time.
    children_cpu_ns: u64,
    /// When it began.
    began_ticks: u64,
    /// A bit for each of the first 31 signals.
    ignored_signals: u64,
}

impl Tree {
    pub(super) fn of(command: &mut Command) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A kernel that refuses gives orphans to init, and what they used is lost.
        let _ = set_child_subreaper(true);
        let number = COUNT.fetch_add(1, Relaxed);
        let owner = Owner::this(ticks_since_boot());
        let mark = format!("{owner}-{number}");
        command.env(MARK, &mark);
        Group::end_abandoned();
        let group = Group::make(&mark);
        if let Some((_, entrance)) = &group
            && let Ok(entrance) = entrance.try_clone()
        {
            let enter = move || {
                // Where it fails the process stays where it is, which is found later.
                let _ = (&entrance).write(b"0");
                Ok(())
            };
            // SAFETY: between fork and exec the closure makes one system call that is safe there; it takes no
            // lock and allocates nothing.
            unsafe { command.pre_exec(enter) };
        }
        Self {
            mark,
            group: group.map(|(group, _)| group),
            root: 0,
            root_began: None,
            known: HashSet::new(),
            reaped: Used::default(),
            ended: 0,
        }
    }

    pub(super) fn started(&mut self, id: u32) {
        self.root = id;
        self.root_began = stat(id).map(|stat| stat.began_ticks);
        self.known.insert(id);
        if self.group.as_ref().is_some_and(|group| !group.holds(id)) {
            self.group = None; // it is removed
        }
    }

    /// The root, until its owner has waited for it.
    fn root(&self) -> Option<u32> {
        let stat = stat(self.root)?;
        let is_it = stat.parent == std::process::id() && Some(stat.began_ticks) == self.root_began;
        is_it.then_some(self.root)
    }

    #[cfg(test)]
    pub(super) fn without_group(&mut self) {
        self.group = None;
    }

    /// As if the root's number were another program's by now.
    #[cfg(test)]
    pub(super) fn with_root(&mut self, id: u32) {
        self.root = id;
    }

    #[cfg(test)]
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    #[cfg(test)]
    pub(super) fn group(&self) -> Option<&Path> {
        self.group.as_ref().map(|group| &*group.0)
    }

    /// All processes that are alive, and those that have ended and were not waited for.
    pub(super) fn processes(&mut self) -> Vec<u32> {
        let root = self.root();
        if root.is_none() && self.known.remove(&self.root) {
            self.ended += 1;
        }
        let mut found = HashSet::from_iter(root);
        let mut to_visit = Vec::from_iter(root);
        if let Some(group) = &self.group {
            found.extend(group.processes());
            to_visit = found.iter().copied().collect();
        }
        // What came to this process, and is of this tree.
        for adopted in children(std::process::id()) {
            if Some(adopted) != root
                && (self.known.contains(&adopted) || is_marked(adopted, &self.mark))
                && found.insert(adopted)
            {
                to_visit.push(adopted);
            }
        }
        while let Some(process) = to_visit.pop() {
            to_visit.extend(children(process).into_iter().filter(|child| found.insert(*child)));
        }
        for id in found.iter().filter(|id| Some(**id) != root) {
            self.reap(*id);
        }
        found.retain(|id| stat(*id).is_some());
        self.ended += self.known.difference(&found).count() as u64;
        self.known = found;
        let mut processes: Vec<u32> = self.known.iter().copied().collect();
        processes.sort_unstable();
        processes
    }

    /// Waits for a process that came to this one and has ended.
    fn reap(&mut self, id: u32) {
        let is_ours = |stat: Stat| stat.state == b'Z' && stat.parent == std::process::id();
        if !stat(id).is_some_and(is_ours) {
            return;
        }
        // SAFETY: all its fields are numbers, and zero is one.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one struct, which outlives the call; the process has ended, and is a child
        // that nobody else waits for.
        let waited = unsafe {
            libc::wait4(id as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG, &raw mut used)
        };
        if waited != id as libc::pid_t {
            return;
        }
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        self.reaped.cpu_ns += ns(used.ru_utime) + ns(used.ru_stime);
        self.reaped.voluntary_switches += used.ru_nvcsw as u64;
        self.reaped.involuntary_switches += used.ru_nivcsw as u64;
    }

    pub(super) fn cpu_ns(&mut self) -> Option<u64> {
        let counted = self.group.as_ref().and_then(Group::cpu_ns);
        if let Some(counted) = counted {
            // The group's count is as of the last tick; the clock of a process alone is exact.
            let root = self.root().and_then(cpu_ns).unwrap_or(0);
            return Some(counted.max(root));
        }
        let processes = self.processes();
        self.cpu_of(&processes)
    }

    /// Of these and of whoever ended before. Parents are read first: what ends in between is missed, and
    /// not counted twice.
    fn cpu_of(&self, processes: &[u32]) -> Option<u64> {
        if processes.iter().any(|id| ignores_children(*id)) {
            return None;
        }
        let mut sum = self.reaped.cpu_ns;
        for stat in processes.iter().filter_map(|id| stat(*id)) {
            sum += stat.children_cpu_ns;
        }
        for id in processes {
            sum += cpu_ns(*id).unwrap_or(0);
        }
        Some(sum)
    }

    pub(super) fn usage(&mut self) -> TreeUsage {
        let mut processes = self.processes();
        let mut usage = self.usage_of(&processes);
        for _ in 1..TRIES {
            let after = self.processes();
            if after == processes {
                break;
            }
            processes = after;
            usage = self.usage_of(&processes);
        }
        usage
    }

    fn usage_of(&mut self, processes: &[u32]) -> TreeUsage {
        let faults: u64 =
            processes.iter().filter_map(|id| Some(stat(*id)?.faults_of_children)).sum();
        let mut sum = ProcessUsage {
            voluntary_switches: Some(self.reaped.voluntary_switches),
            involuntary_switches: Some(self.reaped.involuntary_switches),
            ..ProcessUsage::default()
        };
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0) + more);
            }
        };
        let mut threads = vec![];
        for id in processes {
            let Ok(mut process) = OtherProcess::new(*id) else { continue };
            let one = process.usage();
            let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
            threads.extend(tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok()));
            add(&mut sum.voluntary_switches, one.voluntary_switches);
            add(&mut sum.involuntary_switches, one.involuntary_switches);
            add(&mut sum.resident_bytes, one.resident_bytes);
            add(&mut sum.peak_resident_bytes, one.peak_resident_bytes);
            add(&mut sum.threads, one.threads);
        }
        sum.cpu_ns = match self.group.as_ref().and_then(Group::cpu_ns) {
            Some(_) => self.cpu_ns(),
            None => self.cpu_of(processes),
        };
        let unknown = sum.cpu_ns.is_none().then(|| {
            "the program ignores the end of its children (SIGCHLD), so what they used is lost; it is known \
             where weir may make a control group (cgroup v2), as root may"
                .to_owned()
        });
        TreeUsage {
            usage: sum,
            processes: processes.len() as u32,
            threads,
            ended: self.ended.wrapping_add(faults),
            unknown,
            switches_unknown: None,
        }
    }

    pub(super) fn threads(&mut self) -> Vec<OfThread> {
        let processes = self.processes();
        processes
            .iter()
            .filter_map(|id| OtherProcess::new(*id).ok())
            .flat_map(|p| p.threads())
            .collect()
    }

    /// Kills all of them, until none is left; the root is waited for by its owner.
    pub(super) fn end(&mut self) {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            if let Some(group) = &self.group {
                group.kill();
            }
            let mut alive = self.processes();
            alive.retain(|id| {
                stat(*id).is_some_and(|stat| stat.state != b'Z' && stat.state != b'X')
            });
            alive.iter().for_each(|id| kill(*id));
            if alive.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        self.end_those_missed();
        self.group = None;
    }

    /// Kills whoever came between two looks and has lost all its ancestors, but not its mark; and waits for those that
    /// came to this process.
    pub(super) fn end_those_missed(&mut self) {
        self.known.extend(end_marked(&self.mark));
        let deadline = Instant::now() + GONE_WITHIN;
        // They lose their mark a little before they have ended.
        while self.processes().into_iter().any(|id| Some(id) != self.root()) {
            if Instant::now() >= deadline {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.root != 0 {
            self.end();
        }
    }
}

/// Returns which it killed.
fn end_marked(mark: &str) -> HashSet<u32> {
    let mut killed = HashSet::new();
    let deadline = Instant::now() + GONE_WITHIN;
    let group = Group::path_of(mark).map(Group);
    loop {
        if let Some(group) = &group {
            group.kill();
        }
        let mut alive: Vec<u32> = all().filter(|id| is_marked(*id, mark)).collect();
        // Those that have changed their environment.
        alive.extend(group.iter().flat_map(Group::processes));
        alive.iter().for_each(|id| kill(*id));
        killed.extend(&alive);
        let is_over = alive.is_empty() && group.as_ref().is_none_or(Group::remove);
        if is_over || Instant::now() >= deadline {
            return killed;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn cpu_ns(id: u32) -> Option<u64> {
    OtherProcess::new(id).ok()?.cpu_ns()
}

pub(super) fn kill(id: u32) {
    // It fails where the process has gone meanwhile.
    let _ = signal::kill(Pid::from_raw(id as libc::pid_t), Signal::SIGKILL);
}

/// Whether there is a process with this number, also one that `/proc` does not show.
fn exists(id: u32) -> bool {
    signal::kill(Pid::from_raw(id as libc::pid_t), None) != Err(Errno::ESRCH)
}

impl Group {
    /// Where the group of a tree is.
    fn path_of(mark: &str) -> Option<PathBuf> {
        Some(Self::folder()?.join(format!("{GROUP}{mark}")))
    }

    /// Where the groups of this process's trees are.
    fn folder() -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        own_group(&mounts, &groups)
    }

    /// Kills what is left of trees whose owner was killed before it could, and removes their groups.
    fn end_abandoned() {
        let entries = Self::folder().and_then(|folder| fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(mark) = name.to_str().and_then(|name| name.strip_prefix(GROUP)) else {
                continue;
            };
            // What another user left cannot be killed, and would be waited for.
            let is_ours =
                || File::options().write(true).open(entry.path().join("cgroup.procs")).is_ok();
            if Owner::of(mark).is_some_and(|owner| owner.has_gone()) && is_ours() {
                end_marked(mark);
            }
        }
    }

    /// Makes one, and opens the file by which processes enter it.
    fn make(mark: &str) -> Option<(Self, File)> {
        let path = Self::path_of(mark)?;
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        let entrance = File::options().write(true).open(group.0.join("cgroup.procs")).ok()?;
        // Version 2 counts the CPU time of every group; where it does not, descendants are looked at.
        group.cpu_ns()?;
        Some((group, entrance))
    }

    fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|id| *id != 0).collect()
    }

    fn holds(&self, id: u32) -> bool {
        let name = self.0.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match fs::read_to_string(format!("/proc/{id}/cgroup")) {
            Ok(text) => text.lines().any(|line| line.starts_with("0::") && line.ends_with(name)),
            Err(_) => true, // it has gone; the others are in there
        }
    }

    fn cpu_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(self.0.join("cpu.stat")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(line.trim().parse::<u64>().ok()? * 1000)
    }

    fn kill(&self) {
        // Since Linux 5.14; before, they are killed one by one.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }

    /// Removes it, if nothing is alive in there.
    fn remove(&self) -> bool {
        !fs::remove_dir(&self.0).is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Owner {
    /// This process, of a tree that was made then.
    fn this(ticks: u64) -> Self {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        Self { id: std::process::id(), namespace, ticks }
    }

    /// The owner of the tree with this mark; none if it is no mark.
    fn of(mark: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> = mark.split('-').map(|word| word.parse().ok()).collect();
        let [id, namespace, ticks, _] = numbers?[..] else { return None };
        Some(Self { id: id.try_into().ok()?, namespace, ticks })
    }

    /// Whether it is known to have ended.
    fn has_gone(&self) -> bool {
        if self.namespace != Self::this(0).namespace {
            return false;
        }
        match stat(self.id) {
            Some(stat) => matches!(stat.state, b'Z' | b'X') || stat.began_ticks > self.ticks,
            // It may be hidden from us.
            None => !exists(self.id),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.id, self.namespace, self.ticks)
    }
}

/// The folder of this process's own group of version 2.
fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (of_mount, of_system) = line.split_once(" - ")?;
        if !of_system.starts_with("cgroup2 ") {
            return None;
        }
        // Words count from 0: 3 is the folder of the hierarchy that is mounted, 4 where.
        let words: Vec<&str> = of_mount.split(' ').collect();
        let (root, at) = (words.get(3)?, words.get(4)?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(at).join(below))
    })
}

fn all() -> impl Iterator<Item = u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The children of a process, of all its threads.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let mut known = false;
    let mut found = vec![];
    for thread in threads {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            known = true;
            found.extend(text.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    if !known {
        // A kernel without that file.
        found.extend(all().filter(|other| stat(*other).is_some_and(|stat| stat.parent == id)));
    }
    found
}

/// Whether it was started with the mark. A process has no environment for a moment when exec(2) starts its program,
/// and whoever started it may go on by then: that moment is waited for.
fn is_marked(id: u32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let deadline = Instant::now() + GONE_WITHIN;
    // It cannot be read where the process is another user's, or has gone.
    while let Ok(environment) = fs::read(format!("/proc/{id}/environ")) {
        let is_starting = environment.is_empty() && stat(id).is_some_and(|stat| stat.is_starting);
        if !is_starting || Instant::now() >= deadline {
            return environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes());
        }
        thread::sleep(LOOK_EVERY);
    }
    false
}

/// Whether the system waits for its children in its place, and what they used is lost.
fn ignores_children(id: u32) -> bool {
    stat(id).is_some_and(|stat| stat.ignored_signals & CHILD_ENDED != 0)
}

fn stat(id: u32) -> Option<Stat> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{id}/stat")).ok()?))
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name, in brackets, may have anything in it, and need not be text.
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let state = *words.first()?.as_bytes().first()?;
    // Neither the kernel's own threads nor those that end have one. A process whose memory may not be read shows 0 for
    // where its environment ends; its environment cannot be read either.
    let has_none = state == b'Z' || state == b'X' || number(6)? & (PF_KTHREAD | PF_EXITING) != 0;
    Some(Stat {
        state,
        parent: number(1)? as u32,
        is_starting: !has_none && number(48) == Some(0),
        faults_of_children: number(8)?,
        children_cpu_ns: (number(13)? + number(14)?) * (1_000_000_000 / ticks_per_s()),
        began_ticks: number(19)?,
        ignored_signals: number(30)?,
    })
}

fn ticks_per_s() -> u64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(1, |ticks| ticks.max(1) as u64)
}

/// The time now as `/proc` tells when processes began.
fn ticks_since_boot() -> u64 {
    let now = ClockId::CLOCK_BOOTTIME.now().expect("Linux has this clock since 2.6.39");
    let (s, ns) = (now.tv_sec() as u64, now.tv_nsec() as u64);
    s * ticks_per_s() + ns * ticks_per_s() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_known_by_its_number_its_namespace_and_its_time() {
        let now = ticks_since_boot();
        let this = Owner::this(now);
        assert_eq!(Owner::of(&format!("{this}-7")).as_ref(), Some(&this));
        assert!(!this.has_gone());
        let began = stat(this.id).expect("it is there").began_ticks;
        assert!((1..=now).contains(&began), "{began} of {now}");
        let before = Owner { ticks: began - 1, ..this };
        assert!(before.has_gone(), "another had the number then");
        let elsewhere = Owner { namespace: this.namespace + 1, ..before };
        assert!(!elsewhere.has_gone(), "numbers of another namespace say nothing here");
        let nobody = Owner { id: i32::MAX as u32, ..this };
        assert!(nobody.has_gone());
        for text in
            ["", "1", "1-2-3", "1-2-3-4-5", "1-2.5-3-4", "session-1-2-3", "99999999999-1-1-1"]
        {
            assert_eq!(Owner::of(text), None, "{text}");
        }
    }
}
