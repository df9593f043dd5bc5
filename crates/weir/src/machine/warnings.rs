//! What about a machine makes its figures doubtful, and what to do about it.

use super::{Load, Machine};
use std::fmt;

/// Something that makes figures of this machine doubtful or worse than they could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about, in one word that stays the same: `governor`, `swap`, `load`.
    pub about: &'static str,
    /// What was found, what it does to figures, and what to do.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Other programs may use this share of the cores before it is worth a warning.
pub const MOST_LOAD_OF_OTHERS: f64 = 0.10;
/// The host may take this share of the cores' time before it is worth a warning.
pub const MOST_STOLEN: f64 = 0.01;

/// Clocks whose reading enters the kernel or a device: microseconds instead of some 20 ns.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "pit"];

/// Every reason to doubt figures taken on `machine`, under `load` where it was measured.
pub fn warnings(machine: &Machine, load: Load) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn = |about, text: String| found.push(Warning { about, text });

    if machine.cores.len() < 2 {
        let text = "this process may use one core only: server and generator share it, so rates \
            say little about either; allow it two cores or more";
        warn("cores", text.into());
    }
    if let [first, rest @ ..] = &machine.cores[..]
        && !rest.is_empty()
        && rest.iter().all(|core| first.siblings.contains(&core.number))
    {
        let text = "all cores of this process share one physical core: server and generator slow \
            each other down; allow it cores of another physical core";
        warn("siblings", text.into());
    }
    let slow: Vec<&str> = machine
        .governors
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "performance")
        .collect();
    if !slow.is_empty() {
        let text = format!(
            "the frequency governor is {}: the cores change speed during a run; for steady \
             figures, as root: cpupower frequency-set -g performance",
            slow.join(" and ")
        );
        warn("governor", text);
    }
    if machine.virtualised == Some(true) {
        let text = "this is a virtual machine: its cores change speed and place by themselves; \
            compare only what was measured at the same core-to-core latency";
        warn("virtual", text.into());
    }
    if let Some(swap_bytes) = machine.swap_bytes.filter(|bytes| *bytes > 0) {
        let text = format!(
            "swap is on ({} MiB): a page that was swapped out shows as latency; to be sure, as \
             root: swapoff -a",
            swap_bytes >> 20
        );
        warn("swap", text);
    }
    if let Some(clock) = machine.clocksource.as_deref().filter(|name| SLOW_CLOCKS.contains(name)) {
        let text = format!(
            "the clock source is {clock}, and reading it is slow: times per datagram cost more \
             than the datagram; look in the kernel's log why the processor's own was rejected"
        );
        warn("clocksource", text);
    }
    if let Some(switch) = machine.io_uring_disabled.filter(|switch| *switch > 0) {
        let to_whom = if switch == 1 { "programs without privileges" } else { "all programs" };
        let text = format!(
            "io_uring is forbidden to {to_whom} (kernel.io_uring_disabled = {switch}): the \
             designs on it may not run; to allow it, as root: sysctl kernel.io_uring_disabled=0"
        );
        warn("io_uring", text);
    }
    if let Some(others) = load.others.filter(|share| *share > MOST_LOAD_OF_OTHERS) {
        let text = format!(
            "other programs use {:.0} % of the cores: they slow down what is measured; end them",
            others * 100.0
        );
        warn("load", text);
    }
    if let Some(stolen) = load.stolen.filter(|share| *share > MOST_STOLEN) {
        let text = format!(
            "the host withholds {:.0} % of the cores' time: figures are lower than the machine's \
             own; use a host with less load",
            stolen * 100.0
        );
        warn("stolen", text);
    }
    found
}

/// Which protections against weaknesses of the processor are on, where any are: most of them cost time at each
/// entry into the kernel.
pub fn mitigations(machine: &Machine) -> Option<Warning> {
    let on = machine.mitigations.iter().filter(|one| one.state.contains("Mitigation:"));
    let names: Vec<&str> = on.map(|one| one.weakness.as_str()).collect();
    let text = format!(
        "protections against weaknesses of the processor are on ({}): most cost time at each entry into the \
         kernel, so designs that enter it for each I/O lose most; compare only with figures of machines that \
         have the same on",
        names.join(", ")
    );
    (!names.is_empty()).then_some(Warning { about: "mitigations", text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Core, Mitigation};

    /// Four cores, two to each physical one, and nothing to complain about.
    fn sound() -> Machine {
        let core = |number: usize| Core { number, numa_node: Some(0), siblings: vec![number ^ 1] };
        Machine {
            cores: (0..4).map(core).collect(),
            governors: vec!["performance".into()],
            swap_bytes: Some(0),
            virtualised: Some(false),
            clocksource: Some("tsc".into()),
            io_uring_disabled: Some(0),
            ..Machine::default()
        }
    }

    fn about(machine: &Machine, load: Load) -> Vec<&'static str> {
        warnings(machine, load).iter().map(|warning| warning.about).collect()
    }

    #[test]
    fn a_sound_machine_gives_none() {
        let quiet = Load { others: Some(0.05), stolen: Some(0.0) };
        assert_eq!(about(&sound(), quiet), [""; 0]);
        assert_eq!(about(&sound(), Load::default()), [""; 0]);
    }

    #[test]
    fn each_thing_is_found_by_itself() {
        let with = |change: fn(&mut Machine)| {
            let mut machine = sound();
            change(&mut machine);
            about(&machine, Load::default())
        };
        assert_eq!(with(|m| m.cores.truncate(1)), ["cores"]);
        assert_eq!(with(|m| m.cores.truncate(2)), ["siblings"]);
        assert_eq!(with(|m| m.governors.push("powersave".into())), ["governor"]);
        assert_eq!(with(|m| m.virtualised = Some(true)), ["virtual"]);
        assert_eq!(with(|m| m.swap_bytes = Some(1 << 30)), ["swap"]);
        assert_eq!(with(|m| m.clocksource = Some("hpet".into())), ["clocksource"]);
        assert_eq!(with(|m| m.io_uring_disabled = Some(2)), ["io_uring"]);
        let load = |others, stolen| about(&sound(), Load { others, stolen });
        assert_eq!(load(Some(0.11), None), ["load"]);
        assert_eq!(load(None, Some(0.02)), ["stolen"]);
    }

    #[test]
    fn protections_that_are_on_are_named() {
        let of = |states: &[(&str, &str)]| {
            let mut machine = sound();
            let all = states.iter().map(|(weakness, state)| Mitigation {
                weakness: (*weakness).into(),
                state: (*state).into(),
            });
            machine.mitigations = all.collect();
            mitigations(&machine).map(|warning| warning.text)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("mds", "Vulnerable"), ("ssb", "Not affected")]), None);
        let some =
            of(&[("mds", "Vulnerable"), ("retbleed", "Mitigation: IBRS")]).expect("one is on");
        assert!(some.contains("are on (retbleed): "), "{some}");
    }

    #[test]
    fn a_warning_says_what_was_found() {
        let mut machine = sound();
        machine.governors = vec!["ondemand".into(), "performance".into(), "powersave".into()];
        machine.swap_bytes = Some(512 << 20);
        let load = Load { others: Some(0.34), stolen: None };
        let texts: Vec<String> = warnings(&machine, load).iter().map(Warning::to_string).collect();
        assert_eq!(texts.len(), 3);
        assert!(texts[0].contains("is ondemand and powersave:"), "{}", texts[0]);
        assert!(texts[1].contains("(512 MiB)"), "{}", texts[1]);
        assert!(texts[2].contains("34 %"), "{}", texts[2]);
    }
}
