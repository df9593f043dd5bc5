//! A Windows machine, as far as a program learns it without administrator's rights.

use super::{Instruments, Machine};
use windows_sys::{
    Wdk::System::SystemServices::RtlGetVersion,
    Win32::System::SystemInformation::{
        GetNativeSystemInfo, GlobalMemoryStatusEx, MEMORYSTATUSEX, OSVERSIONINFOW, SYSTEM_INFO,
    },
};

pub(super) fn describe() -> Machine {
    let memory = memory();
    Machine {
        cpu_model: std::env::var("PROCESSOR_IDENTIFIER")
            .ok()
            .map(|model| model.trim().to_owned())
            .filter(|model| !model.is_empty()),
        online_cores: Some(processors()),
        kernel: version(),
        memory_bytes: memory.map(|memory| memory.ullTotalPhys),
        available_bytes: memory.map(|memory| memory.ullAvailPhys),
        // The limit of what can be promised is memory and swap together.
        swap_bytes: memory
            .map(|memory| memory.ullTotalPageFile.saturating_sub(memory.ullTotalPhys)),
        ..Machine::default()
    }
}

/// What the driver verifier does is known to administrators only.
pub(super) fn instruments() -> Instruments {
    Instruments::default()
}

/// No function is known that enters the kernel and does nothing.
pub(super) fn call() -> bool {
    false
}

fn processors() -> usize {
    let mut system = SYSTEM_INFO::default();
    // SAFETY: `system` is valid for writing; the function cannot fail.
    unsafe { GetNativeSystemInfo(&mut system) };
    system.dwNumberOfProcessors as usize
}

fn memory() -> Option<MEMORYSTATUSEX> {
    let length = size_of::<MEMORYSTATUSEX>() as u32;
    let mut memory = MEMORYSTATUSEX { dwLength: length, ..Default::default() };
    // SAFETY: `memory` is valid for writing and says its length.
    (unsafe { GlobalMemoryStatusEx(&mut memory) } != 0).then_some(memory)
}

fn version() -> Option<String> {
    let length = size_of::<OSVERSIONINFOW>() as u32;
    let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: length, ..Default::default() };
    // SAFETY: `version` is valid for writing and says its length. Unlike GetVersionEx this
    // answers with the true version.
    (unsafe { RtlGetVersion(&mut version) } == 0).then(|| {
        format!("{}.{}.{}", version.dwMajorVersion, version.dwMinorVersion, version.dwBuildNumber)
    })
}
