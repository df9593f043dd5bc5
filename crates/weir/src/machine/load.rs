//! How busy the machine was with other things.

use crate::counters::os::{ProcessUsage, Sampler, SystemUsage};

/// What the cores did between two moments, as shares from 0 to 1 of all cores' time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Busy with other programs than this one; with the kernel's own work too, interrupts
    /// for this program among it.
    pub others: Option<f64>,
    /// Ready to run, but the host ran something else.
    pub stolen: Option<f64>,
}

/// Measures the load between its making and its reading: make it, do or wait for what is
/// to be watched, read it. Below some 100 ms the ticks of 10 ms show, and the answer is rough.
#[derive(Debug)]
pub struct LoadMeter {
    sampler: Sampler,
    system: SystemUsage,
    process: ProcessUsage,
}

impl LoadMeter {
    /// Begins to measure.
    pub fn start() -> Self {
        let mut sampler = Sampler::new();
        let (system, process) = (sampler.system(), sampler.process());
        Self { sampler, system, process }
    }

    /// The load since the beginning. A child process counts as another program: its CPU time,
    /// in ns, can be given as `children_cpu_ns`, else 0.
    pub fn read(&mut self, children_cpu_ns: u64) -> Load {
        let system = self.sampler.system().since(&self.system);
        let process = self.sampler.process().since(&self.process);
        load(&system, process.cpu_ns.map(|own| own.saturating_add(children_cpu_ns)))
    }
}

fn load(system: &SystemUsage, own_ns: Option<u64>) -> Load {
    let cores = system.cores_total();
    let share = |part: Option<u64>| {
        let (part, total) = part.zip(cores.total_ns())?;
        (total > 0).then(|| part as f64 / total as f64)
    };
    let stolen = cores.steal_ns.unwrap_or(0); // kernels that do not count it show none
    let busy = cores.busy_ns().map(|busy| busy.saturating_sub(stolen));
    let others = busy.zip(own_ns).map(|(busy, own)| busy.saturating_sub(own));
    Load { others: share(others), stolen: share(cores.steal_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::os::{CoreUsage, OfCore};

    fn two_cores(user_ns: u64, idle_ns: u64, steal_ns: u64) -> SystemUsage {
        let usage = CoreUsage {
            user_ns: Some(user_ns),
            idle_ns: Some(idle_ns),
            steal_ns: Some(steal_ns),
            ..CoreUsage::default()
        };
        let cores = vec![OfCore { core: 0, usage }, OfCore { core: 1, usage }];
        SystemUsage { cores, ..SystemUsage::default() }
    }

    #[test]
    fn others_are_what_is_busy_without_us() {
        let load = load(&two_cores(300, 600, 100), Some(400));
        assert_eq!((load.others, load.stolen), (Some(0.1), Some(0.1)));
    }

    #[test]
    fn ticks_may_show_less_than_we_used() {
        assert_eq!(load(&two_cores(300, 700, 0), Some(601)).others, Some(0.0));
    }

    #[test]
    fn no_time_and_no_figures_give_no_share() {
        assert_eq!(load(&two_cores(0, 0, 0), Some(0)), Load::default());
        assert_eq!(load(&SystemUsage::default(), Some(0)), Load::default());
        assert_eq!(load(&two_cores(300, 700, 0), None).others, None);
    }

    #[test]
    fn own_work_is_no_load_of_others() {
        let mut meter = LoadMeter::start();
        let mut n = 0u64;
        let since_start = |meter: &mut LoadMeter| meter.sampler.process().since(&meter.process);
        while since_start(&mut meter).cpu_ns.is_some_and(|own| own < 50_000_000) {
            n = std::hint::black_box(n + 1);
        }
        let load = meter.read(0);
        for share in [load.others, load.stolen].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share), "{load:?}");
        }
    }
}
