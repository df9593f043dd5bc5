//! What watches or checks the kernel while something is measured: the mistake of the original, whose
//! driver was checked at every call, and nobody saw it for a long time.

use super::Warning;

/// What was found. What could not be looked at is `None` or not among it; [`Instruments::warnings`] says
/// so only of the kernel's own settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instruments {
    /// The kernel's settings that check it at run time, as its build names them: `KASAN`. `None`: not
    /// known.
    pub checkers: Option<Vec<&'static str>>,
    /// Checks of small allocations that are switched on, as sysfs names them: `poison`.
    pub slab_checks: Vec<&'static str>,
    /// What traces the kernel now, in words.
    pub tracing: Vec<String>,
    /// The process that traces this one, as strace and debuggers do.
    pub tracer: Option<u32>,
    /// Filters that look at each system call of this process.
    pub filters: Option<u32>,
}

/// Settings of the kernel's build that cost time in every run, and how they are called in words.
pub(super) const CHECKERS: [(&str, &str); 16] = [
    ("KASAN", "each access to memory is checked"),
    ("KMSAN", "each use of memory is checked"),
    ("KCSAN", "accesses are watched for races"),
    ("UBSAN", "arithmetic and ranges are checked"),
    ("KCOV", "each branch is noted"),
    ("GCOV_KERNEL", "each branch is counted"),
    ("PROVE_LOCKING", "lockdep proves each lock"),
    ("LOCK_STAT", "each lock is timed"),
    ("DEBUG_LOCK_ALLOC", "each lock is followed"),
    ("DEBUG_MUTEXES", "each mutex is checked"),
    ("DEBUG_SPINLOCK", "each spin lock is checked"),
    ("DEBUG_OBJECTS", "the lives of objects are followed"),
    ("DEBUG_KMEMLEAK", "each allocation is noted"),
    ("DEBUG_PREEMPT", "each use of a core's own data is checked"),
    ("SLUB_DEBUG_ON", "each small allocation is checked"),
    ("FAULT_INJECTION", "each allocation may be made to fail"),
];

impl Instruments {
    /// Looks. It reads some small files, and the settings of the kernel's build, which takes some
    /// milliseconds; nothing is remembered.
    pub fn find() -> Self {
        super::sys::instruments()
    }

    /// A warning for each thing found.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        let mut warn = |about, text: String| found.push(Warning { about, text });
        match &self.checkers {
            None => warn(
                "checkers",
                "whether this kernel checks itself at run time is not known, since the settings of its \
                 build cannot be read (on Linux /boot/config-* or /proc/config.gz): such checks can \
                 cost more than the I/O that is measured"
                    .into(),
            ),
            Some(on) if !on.is_empty() => {
                let words: Vec<String> = CHECKERS
                    .iter()
                    .filter(|(name, _)| on.contains(name))
                    .map(|(name, words)| format!("{name}: {words}"))
                    .collect();
                let text = format!(
                    "this kernel checks itself at run time ({}): figures are far below what others \
                     give; use a kernel without",
                    words.join("; ")
                );
                warn("checkers", text);
            }
            Some(_) => {}
        }
        if !self.slab_checks.is_empty() {
            let text = format!(
                "the kernel checks small allocations ({}): I/O that allocates is slowed down; start \
                 it without slab_debug",
                self.slab_checks.join(", ")
            );
            warn("slab", text);
        }
        if !self.tracing.is_empty() {
            let text = format!(
                "the kernel is being traced ({}): each call may be noted down; end the tracing",
                self.tracing.join(", ")
            );
            warn("tracing", text);
        }
        if let Some(tracer) = self.tracer {
            let text = format!(
                "process {tracer} traces this one (strace, a debugger): each system call may stop \
                 twice; run it without"
            );
            warn("tracer", text);
        }
        if let Some(filters) = self.filters {
            let text = format!(
                "{filters} filter(s) look at each system call of this process (seccomp, as in \
                 containers): designs that make many calls lose most; run it outside"
            );
            warn("seccomp", text);
        }
        found
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
    CHECKERS.iter().map(|(name, _)| *name).filter(|name| on(name)).collect()
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
        let sound = || Instruments { checkers: Some(vec![]), ..Instruments::default() };
        assert_eq!(about(sound()), [""; 0]);
        assert_eq!(about(Instruments::default()), ["checkers"]);
        assert_eq!(about(Instruments { slab_checks: vec!["poison"], ..sound() }), ["slab"]);
        assert_eq!(about(Instruments { tracing: vec!["x".into()], ..sound() }), ["tracing"]);
        assert_eq!(about(Instruments { tracer: Some(7), ..sound() }), ["tracer"]);
        assert_eq!(about(Instruments { filters: Some(2), ..sound() }), ["seccomp"]);
        let checked = Instruments { checkers: Some(vec!["KASAN", "UBSAN"]), ..sound() };
        let text = checked.warnings()[0].to_string();
        assert!(
            text.contains("KASAN: each access") && text.contains("UBSAN: arithmetic"),
            "{text}"
        );
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let found = Instruments::find();
        assert!(found.warnings().len() <= 5, "{found:?}");
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
