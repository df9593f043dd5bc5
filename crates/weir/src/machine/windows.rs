//! A Windows machine, as far as a program learns it without administrator's rights.

use super::{Instruments, Link, Machine};
use std::{
    ffi::{CStr, c_char},
    io,
    net::IpAddr,
    sync::OnceLock,
};
use windows_sys::{
    Wdk::System::SystemServices::RtlGetVersion,
    Win32::System::{
        LibraryLoader::{GetModuleHandleA, GetProcAddress},
        SystemInformation::{
            GetNativeSystemInfo, GlobalMemoryStatusEx, MEMORYSTATUSEX, OSVERSIONINFOW, SYSTEM_INFO,
        },
    },
};

pub(super) fn link_bits_per_s(_device: &str) -> io::Result<Option<u64>> {
    let why = "the speed of a link is not asked for on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

pub(super) fn addresses(_device: &str) -> io::Result<Vec<IpAddr>> {
    let why = "the addresses of a device are not asked for on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

pub(super) fn links() -> io::Result<Vec<Link>> {
    let why = "the links of a machine are not asked for on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

pub(super) fn describe() -> Machine {
    let memory = memory();
    Machine {
        cpu_model: std::env::var("PROCESSOR_IDENTIFIER")
            .ok()
            .map(|model| model.trim().to_owned())
            .filter(|model| !model.is_empty()),
        online_cores: Some(processors()),
        kernel: version(),
        emulator: wine(),
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

pub(super) fn memory_left_bytes() -> Option<u64> {
    memory().map(|memory| memory.ullAvailPhys)
}

fn memory() -> Option<MEMORYSTATUSEX> {
    let length = size_of::<MEMORYSTATUSEX>() as u32;
    let mut memory = MEMORYSTATUSEX { dwLength: length, ..Default::default() };
    // SAFETY: `memory` is valid for writing and says its length.
    (unsafe { GlobalMemoryStatusEx(&mut memory) } != 0).then_some(memory)
}

/// Whether this is Wine.
pub(crate) fn is_wine() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| wine().is_some())
}

/// Wine, if this is it: its ntdll has a function that Windows' has not.
fn wine() -> Option<String> {
    // SAFETY: the name ends with a zero; ntdll is in every process, and stays there.
    let library = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
    // SAFETY: the name ends with a zero; a library that is null has no such function either.
    let function = unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }?;
    // SAFETY: Wine declares it as a function without arguments that returns a string.
    let version = unsafe {
        std::mem::transmute::<
            unsafe extern "system" fn() -> isize,
            unsafe extern "C" fn() -> *const c_char,
        >(function)()
    };
    // SAFETY: the string ends with a zero, and is a constant of the library.
    let version = unsafe { CStr::from_ptr(version) };
    Some(format!("Wine {}", version.to_string_lossy()))
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
