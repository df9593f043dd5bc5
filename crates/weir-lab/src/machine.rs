//! The machine an experiment ran on, as the reports show it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use weir::machine::{Check, Limit, Load, LoadMeter};

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Its properties by name, with units in the names; unknown ones are null.
    #[serde(flatten)]
    pub properties: Map<String, Value>,
    /// What makes its figures doubtful: other load, a governor that saves power.
    pub warnings: Vec<String>,
}

/// The property that says why no thread may be bound to a core; null where that is possible.
const UNBOUND: &str = "binding_to_cores_forbidden";

/// What stands in place of a device where there is none.
const NO_DEVICE: &str = "none";

/// How long the load of other programs is watched: the ticks of 10 ms show below it.
const WATCHED: Duration = Duration::from_millis(200);

impl Machine {
    /// Describes this machine and watches it for a moment. To be called before anything is
    /// pinned or started.
    pub fn watch() -> Self {
        Self::watched(|machine, load| {
            weir::machine::warnings(machine, load).iter().map(ToString::to_string).collect()
        })
    }

    /// The same with the warnings that matter to I/Os of devices.
    pub fn watch_for_ios() -> Self {
        Self::watched(warnings_of_ios)
    }

    fn watched(warnings: fn(&weir::machine::Machine, Load) -> Vec<String>) -> Self {
        let mut meter = LoadMeter::start();
        std::thread::sleep(WATCHED);
        let load = meter.read(0);
        let machine = weir::machine::Machine::describe();
        let warnings = warnings(&machine, load);
        let mut properties = properties(&machine);
        properties.insert("load_of_others_percent".into(), json!(load.others.map(|s| s * 100.0)));
        properties.insert("stolen_percent".into(), json!(load.stolen.map(|s| s * 100.0)));
        let forbidden = weir::affinity::forbidden().map(|why| format!("sched_setaffinity: {why}"));
        properties.insert(UNBOUND.into(), json!(forbidden));
        let mut machine = Self { properties, warnings };
        machine.warnings.extend(machine.unbound().map(|why| {
            format!(
                "no thread may be bound to a core here ({why}): servers, generators and designs run on any \
                 core, and disturb each other; allow it in the container's seccomp profile, or run outside it"
            )
        }));
        machine
    }

    /// Why no thread may be bound to a core, if so.
    pub fn unbound(&self) -> Option<String> {
        self.text(UNBOUND)
    }

    /// What figures of the network depend on, a paragraph each: which cores are on which NUMA node, and the network
    /// devices, none of which takes part where both sides run on this machine. Empty where nothing is known.
    pub fn hardware(&self) -> Vec<String> {
        let list = |name: &str| self.properties.get(name).and_then(Value::as_array);
        let mut nodes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let (cores, of_cores) = (list("core_numbers"), list("numa_nodes"));
        for (core, node) in cores.into_iter().flatten().zip(of_cores.into_iter().flatten()) {
            if let Some(node) = node.as_u64() {
                nodes.entry(node).or_default().push(core.to_string());
            }
        }
        let nodes = nodes
            .into_iter()
            .map(|(node, cores)| format!("NUMA node {node}: cores {}", cores.join(",")));
        let devices = list("network_devices").into_iter().flatten().filter_map(Value::as_str);
        let devices = devices.map(|device| match device.strip_prefix(NO_DEVICE) {
            Some(rest) => format!("network devices: {NO_DEVICE}{rest}"),
            None => format!("network device that is not used: {device}"),
        });
        nodes.chain(devices).collect()
    }

    /// A property as text, or `None` where it is unknown.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.properties.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// What makes rates of I/Os doubtful: what makes any doubtful, and what checks or slows each entry into the
/// kernel.
pub(crate) fn warnings_of_ios(machine: &weir::machine::Machine, load: Load) -> Vec<String> {
    let mut warnings = weir::machine::warnings(machine, load);
    // There is no generator that would need cores of its own.
    warnings.retain(|warning| !["cores", "siblings"].contains(&warning.about));
    warnings.extend(Some(weir::machine::mitigations(machine, None)).filter(Check::is_warning));
    warnings.extend(weir::machine::Instruments::find().warnings());
    warnings.iter().map(ToString::to_string).collect()
}

/// Its properties by name, with units in the names; unknown ones are null.
pub fn properties(machine: &weir::machine::Machine) -> Map<String, Value> {
    let limit = |limit: Option<Limit>| match limit {
        Some(Limit::AtMost(most)) => json!(most),
        Some(Limit::Unlimited) => json!("unlimited"),
        None => Value::Null,
    };
    let mitigations = machine.mitigations.iter().map(|m| (m.weakness.clone(), json!(m.state)));
    let all = json!({
        "cpu_model": machine.cpu_model,
        "cores": machine.cores.len(),
        "core_numbers": machine.cores.iter().map(|core| core.number).collect::<Vec<_>>(),
        "network_devices": network(machine),
        "numa_nodes": machine.cores.iter().map(|core| core.numa_node).collect::<Vec<_>>(),
        "online_cores": machine.online_cores,
        "os": machine.os,
        "architecture": machine.architecture,
        "kernel": machine.kernel,
        "emulator": machine.emulator,
        "memory_bytes": machine.memory_bytes,
        "available_bytes": machine.available_bytes,
        "swap_bytes": machine.swap_bytes,
        "virtualised": machine.virtualised,
        "hypervisor": machine.hypervisor,
        "governors": machine.governors,
        "mitigations": Map::from_iter(mitigations),
        "rmem_max_bytes": machine.rmem_max_bytes,
        "wmem_max_bytes": machine.wmem_max_bytes,
        "memlock_bytes": limit(machine.memlock),
        "open_files": limit(machine.open_files),
        "clocksource": machine.clocksource,
        "io_uring_disabled": machine.io_uring_disabled,
        "huge_pages": machine.huge_pages,
    });
    match all {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Its network devices in words: what figures over a link depend on.
fn network(machine: &weir::machine::Machine) -> Vec<String> {
    if !machine.network.is_empty() {
        return machine.network.iter().map(ToString::to_string).collect();
    }
    let where_none = match machine.virtualised {
        Some(true) => " of hardware or of the host of this virtual machine",
        _ => " that is known to have hardware",
    };
    vec![format!("{NO_DEVICE}{where_none}: no link speed, PCIe link, RSS or interrupts to report")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_text() {
        let properties = Map::from_iter([
            ("cpu_model".to_owned(), Value::from("A CPU")),
            ("cores".to_owned(), Value::from(2)),
            ("governor".to_owned(), Value::Null),
        ]);
        let machine = Machine { properties, warnings: vec![] };
        assert_eq!(machine.text("cpu_model").as_deref(), Some("A CPU"));
        assert_eq!(machine.text("cores").as_deref(), Some("2"));
        assert_eq!((machine.text("governor"), machine.text("none")), (None, None));
    }

    #[test]
    fn a_machine_without_network_devices_says_so() {
        let of = |virtualised| {
            network(&weir::machine::Machine { virtualised, ..Default::default() }).remove(0)
        };
        assert!(of(Some(true)).contains("virtual machine"), "{}", of(Some(true)));
        assert!(of(None).starts_with("none that is known"), "{}", of(None));
        let device = weir::machine::NetworkDevice { name: "eth7".into(), ..Default::default() };
        let one = weir::machine::Machine { network: vec![device], ..Default::default() };
        assert!(network(&one)[0].starts_with("eth7 (driver unknown): link speed unknown"));
    }

    #[test]
    fn cores_are_told_by_their_node_and_devices_one_by_one() {
        let properties = json!({
            "core_numbers": [0, 1, 2, 5], "numa_nodes": [0, 1, 0, null],
            "network_devices": ["eth0 (x): link speed unknown"],
        });
        let Value::Object(properties) = properties else { unreachable!("an object") };
        let machine = Machine { properties, warnings: vec![] };
        assert_eq!(
            machine.hardware(),
            [
                "NUMA node 0: cores 0,2",
                "NUMA node 1: cores 1",
                "network device that is not used: eth0 (x): link speed unknown"
            ]
        );
        assert!(Machine::default().hardware().is_empty());
    }

    #[test]
    fn this_machine_has_the_properties_that_reports_show() {
        let machine = Machine::watch();
        for name in ["cpu_model", "cores", "kernel"] {
            assert!(machine.text(name).is_some(), "{name} of {machine:?}");
        }
    }
}
