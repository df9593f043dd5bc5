//! What watches or checks the kernel while something is measured: the mistake of the original, whose
//! driver was checked at every call, and nobody saw it for a long time.

use super::check::{Check, Effect};

/// What was found. What could not be looked at is `None` or not among it; [`Instruments::warnings`] says
/// so of the kernel's own settings and of its tracing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instruments {
    /// The kernel's settings that check it at run time, as its build names them: `KASAN`. `None`: not
    /// known.
    pub checkers: Option<Vec<&'static str>>,
    /// Checks of small allocations that are switched on, as sysfs names them: `poison`.
    pub slab_checks: Vec<&'static str>,
    /// What traces the kernel now, in words. `None`: not known.
    pub tracing: Option<Vec<String>>,
    /// The process that traces this one, as strace and debuggers do.
    pub tracer: Option<u32>,
    /// Filters that look at each system call of this process.
    pub filters: Option<u32>,
}

/// What a check of the kernel costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// Each I/O takes a multiple of its time.
    Much,
    /// Some percent: distributions ship it.
    Little,
}

/// Settings of the kernel's build that cost time in every run, how they are called in words, and how much that
/// is.
pub(super) const CHECKERS: [(&str, &str, Cost); 16] = [
    ("KASAN", "each access to memory is checked", Cost::Much),
    ("KMSAN", "each use of memory is checked", Cost::Much),
    ("KCSAN", "accesses are watched for races", Cost::Much),
    ("UBSAN", "some arithmetic and the bounds of arrays are checked", Cost::Little),
    ("KCOV", "each branch is noted", Cost::Much),
    ("GCOV_KERNEL", "each branch is counted", Cost::Much),
    ("PROVE_LOCKING", "lockdep proves each lock", Cost::Much),
    ("LOCK_STAT", "each lock is timed", Cost::Much),
    ("DEBUG_LOCK_ALLOC", "each lock is followed", Cost::Much),
    ("DEBUG_MUTEXES", "each mutex is checked", Cost::Much),
    ("DEBUG_SPINLOCK", "each spin lock is checked", Cost::Much),
    ("DEBUG_OBJECTS", "the lives of objects are followed", Cost::Much),
    ("DEBUG_KMEMLEAK", "each allocation is noted", Cost::Much),
    ("DEBUG_PREEMPT", "each use of a core's own data is checked", Cost::Much),
    ("SLUB_DEBUG_ON", "each small allocation is checked", Cost::Much),
    (
        "FAULT_INJECTION",
        "calls can be made to fail, and each checks whether it should",
        Cost::Little,
    ),
];

impl Instruments {
    /// A check for each thing looked at.
    pub fn checks(&self) -> Vec<Check> {
        let mut found = Vec::new();
        match &self.checkers {
            None => found.push(Check::unknown(
                "checkers",
                "whether this kernel checks itself at run time is not known, since the settings of its build cannot \
                 be read (on Linux /boot/config-* or /proc/config.gz)",
                "such checks can cost more than the I/O that is measured",
            )),
            Some(on) => {
                let of = |cost: Cost| -> Vec<String> {
                    CHECKERS
                        .iter()
                        .filter(|(name, _, costs)| on.contains(name) && *costs == cost)
                        .map(|(name, words, _)| format!("{name}: {words}"))
                        .collect()
                };
                let (much, little) = (of(Cost::Much).join("; "), of(Cost::Little).join("; "));
                found.push(match much.is_empty() {
                    true => Check::fine("checkers", "this kernel has no costly checks of itself built in"),
                    false => Check::bad(
                        "checkers",
                        Effect::Falsifies,
                        format!("this kernel checks itself at run time ({much})"),
                        "figures are far below those of other kernels",
                        "use a kernel without them",
                    ),
                });
                if !little.is_empty() {
                    found.push(Check::bad(
                        "checks",
                        Effect::Limits,
                        format!("this kernel has checks that cost little ({little})"),
                        "figures may be some percent below those of a kernel without them",
                        "",
                    ));
                }
            }
        }
        found.push(match self.slab_checks.is_empty() {
            true => Check::fine("slab", "the kernel checks no small allocations"),
            false => Check::bad(
                "slab",
                Effect::Falsifies,
                format!("the kernel checks small allocations ({})", self.slab_checks.join(", ")),
                "I/O that allocates is slowed down",
                "start it without slab_debug",
            ),
        });
        found.push(match &self.tracing {
            None => Check::unknown(
                "tracing",
                "whether the kernel is being traced is not known, since what says so cannot be read (on Linux \
                 tracefs, mounted at /sys/kernel/tracing, which root may read)",
                "each call may be recorded",
            ),
            Some(by) if !by.is_empty() => Check::bad(
                "tracing",
                Effect::Falsifies,
                format!("the kernel is being traced ({})", by.join(", ")),
                "each call may be recorded",
                "end the tracing",
            ),
            Some(_) => Check::fine("tracing", "the kernel is not being traced"),
        });
        found.push(match self.tracer {
            Some(tracer) => Check::bad(
                "tracer",
                Effect::Falsifies,
                format!("process {tracer} traces this one (strace, a debugger)"),
                "each system call may stop twice",
                "run it without",
            ),
            None => Check::fine("tracer", "no process traces this one"),
        });
        found.push(match self.filters {
            Some(filters) => Check::bad(
                "seccomp",
                Effect::Limits,
                format!("{filters} filter(s) look at each system call of this process (seccomp, as in containers)"),
                "designs that make many calls lose most",
                "run it outside",
            ),
            None => Check::fine("seccomp", "no filter looks at the system calls of this process"),
        });
        found
    }

    /// Those that say something about figures.
    pub fn warnings(&self) -> Vec<Check> {
        self.checks().into_iter().filter(Check::is_warning).collect()
    }
}

/// Which of [`CHECKERS`] the settings of a kernel's build switch on: lines `CONFIG_KASAN=y`.
#[cfg(any(target_os = "linux", test))]
pub(super) fn switched_on(config: &str) -> Vec<&'static str> {
    let on = |name: &str| {
        config.lines().any(|line| {
            let setting = line.trim().strip_prefix("CONFIG_");
            setting.and_then(|setting| setting.strip_prefix(name)) == Some("=y")
        })
    };
    CHECKERS.iter().map(|(name, ..)| *name).filter(|name| on(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_whole_names_that_are_switched_on() {
        let config = "# CONFIG_KCSAN is not set\nCONFIG_KASAN=y\nCONFIG_KASAN_INLINE=y\n\
                      CONFIG_UBSAN_BOUNDS=y\nCONFIG_HAVE_ARCH_KMSAN=y\n  CONFIG_LOCK_STAT=y\n\
                      CONFIG_KCOV=m\n#CONFIG_UBSAN=y\n";
        assert_eq!(switched_on(config), ["KASAN", "LOCK_STAT"]);
        assert_eq!(switched_on(""), [""; 0]);
    }

    #[test]
    fn each_thing_is_found_by_itself() {
        let about = |instruments: Instruments| -> Vec<&'static str> {
            instruments.warnings().iter().map(|warning| warning.about).collect()
        };
        let sound = || Instruments {
            checkers: Some(vec![]),
            tracing: Some(vec![]),
            ..Instruments::default()
        };
        assert_eq!(about(sound()), [""; 0]);
        assert_eq!(about(Instruments::default()), ["checkers", "tracing"]);
        assert_eq!(about(Instruments { slab_checks: vec!["poison"], ..sound() }), ["slab"]);
        assert_eq!(about(Instruments { tracing: Some(vec!["x".into()]), ..sound() }), ["tracing"]);
        assert_eq!(about(Instruments { tracer: Some(7), ..sound() }), ["tracer"]);
        assert_eq!(about(Instruments { filters: Some(2), ..sound() }), ["seccomp"]);
        let checked = Instruments { checkers: Some(vec!["KASAN", "UBSAN"]), ..sound() };
        let [much, little] = &checked.warnings()[..] else { panic!("{checked:?}") };
        assert!(
            much.to_string().contains("(KASAN: each access to memory is checked): figures are far")
        );
        assert!(little.to_string().contains("(UBSAN: some arithmetic"), "{little}");
        let shipped = Instruments { checkers: Some(vec!["FAULT_INJECTION"]), ..sound() };
        assert_eq!(about(shipped), ["checks"], "what a distribution ships is no more than that");
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let found = Instruments::find();
        assert!(found.warnings().len() <= 6, "{found:?}");
        assert_eq!(found, Instruments::find(), "and nothing changes by looking");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(CONFIG_|# |KASAN|UBSAN|=y|=n|\n|\\PC){0,30}") {
            for name in switched_on(&text) {
                let line = format!("CONFIG_{name}=y");
                prop_assert!(text.contains(&line));
            }
        }
    }
}
