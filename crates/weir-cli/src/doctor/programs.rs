//! Which programs keep the cores busy, from /proc.

use std::collections::HashMap;
use std::fs;

/// Most programs that are named.
const MOST_NAMED: usize = 3;
/// The least share of all cores that is worth a name.
const LEAST_SHARE: f64 = 0.01;

/// The CPU time of all processes and of all cores, in ticks.
pub struct CpuTimes {
    /// By process id: its name, when it was started, and its CPU time. An id may be given again.
    processes: HashMap<u32, (String, u64, u64)>,
    /// What the cores did in all, idle time included.
    cores: u64,
}

/// A program that was busy.
#[derive(Debug, PartialEq)]
pub struct Program {
    name: String,
    process: u32,
    /// Its share (0 to 1) of all cores.
    share: f64,
}

impl CpuTimes {
    /// Those up to now; `None` where the system does not show them.
    pub fn now() -> Option<Self> {
        let of = |entry: fs::DirEntry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            // One that has ended meanwhile is none.
            Some((process, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        };
        let processes: HashMap<_, _> =
            fs::read_dir("/proc").ok()?.flatten().filter_map(of).collect();
        let cores = cores(&fs::read_to_string("/proc/stat").ok()?)?;
        // Where others' processes are hidden, there is this one alone.
        (processes.len() > 1).then_some(Self { processes, cores })
    }

    /// The programs that were busiest since then but for this one, the busiest first; `None` where no tick has passed.
    pub fn busiest_since(&self, before: &Self) -> Option<Vec<Program>> {
        let cores = self.cores.checked_sub(before.cores).filter(|ticks| *ticks > 0)?;
        let own = std::process::id();
        let program = |(process, (name, started, ticks)): (&u32, &(String, u64, u64))| {
            let known = before.processes.get(process).filter(|(_, of, _)| of == started);
            let ticks = ticks.saturating_sub(known.map_or(0, |(.., ticks)| *ticks));
            let share = ticks as f64 / cores as f64;
            (*process != own && share >= LEAST_SHARE).then(|| Program {
                name: name.clone(),
                process: *process,
                share,
            })
        };
        let mut busy: Vec<Program> = self.processes.iter().filter_map(program).collect();
        busy.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.process.cmp(&b.process)));
        busy.truncate(MOST_NAMED);
        Some(busy)
    }
}

/// Name, start and CPU time in a process's line of figures. The name is in brackets, and may have some itself.
fn parse(stat: &str) -> Option<(String, u64, u64)> {
    let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(begin + 1..end)?.to_owned();
    let fields: Vec<&str> = stat.get(end + 1..)?.split_whitespace().collect();
    // proc(5) counts from the process id, as 1: behind the name come the fields from the third on.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((name, field(22)?, field(14)? + field(15)?))
}

/// All ticks of all cores. Guests' are in those of their hosts' users.
fn cores(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    Some(line.split_whitespace().take(8).filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
}

/// The busiest programs, in words behind how busy all are.
pub fn named(busiest: Option<Vec<Program>>) -> String {
    let Some(busiest) = busiest else { return "; which ones could not be read from /proc".into() };
    let each = busiest.iter().map(|of| {
        let Program { name, process, share } = of;
        format!("{} (process {process}, {:.0} %)", crate::harmless(name), share * 100.0)
    });
    match each.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "; none of those that are still there used much".into(),
        each => format!("; the busiest: {each}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_named_with_their_share_of_the_cores() {
        let line = |name: &str, started: u64, user: u64, system: u64| {
            format!(
                "7 ({name}) R 1 7 7 0 -1 4194560 1 2 3 4 {user} {system} 0 0 20 0 1 0 {started} 9 9\n"
            )
        };
        assert_eq!(parse(&line("a) (b c", 5, 30, 12)), Some(("a) (b c".into(), 5, 42)));
        assert_eq!(parse("7 (cut off) R 1"), None);
        let stat = "cpu  10 0 20 60 4 1 2 3 10 0\ncpu0 1 1 1 1\n";
        assert_eq!(cores(stat), Some(100));
        let times = |cores: u64, processes: &[(u32, u64, u64)]| CpuTimes {
            cores,
            processes: processes
                .iter()
                .map(|(process, started, ticks)| {
                    (*process, (format!("p{process}"), *started, *ticks))
                })
                .collect(),
        };
        let own = std::process::id();
        let before = times(1000, &[(1, 1, 500), (2, 1, 100), (3, 1, 9), (own, 1, 0)]);
        let after = times(
            1100,
            &[(1, 1, 500), (2, 1, 150), (3, 2, 20), (4, 3, 10), (5, 3, 5), (own, 1, 70)],
        );
        let busiest = after.busiest_since(&before);
        assert_eq!(
            named(busiest),
            "; the busiest: p2 (process 2, 50 %), p3 (process 3, 20 %), p4 (process 4, 10 %)"
        );
        assert!(before.busiest_since(&before).is_none(), "no tick has passed");
        assert!(named(None).contains("could not be read"));
        assert!(named(Some(vec![])).contains("none"));
    }
}
