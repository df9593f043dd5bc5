//! Cores on Windows: the masks of the first processor group, which holds up to 64.

use std::io;
use windows_sys::Win32::{
    Foundation::ERROR_INVALID_PARAMETER,
    System::Threading::{
        GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetNumaProcessorNode,
        GetProcessAffinityMask, SetProcessAffinityMask, SetThreadAffinityMask,
    },
};

fn process_mask() -> Option<usize> {
    let (mut process, mut system) = (0usize, 0usize);
    // SAFETY: the handle of the current process is a constant and always valid, and both
    // masks are valid for writing.
    let read = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &mut process, &mut system) };
    (read != 0).then_some(process)
}

/// The mask of the calling thread. Windows tells it only when another is set, so the mask of
/// the process is set and then put back.
fn thread_mask(process: usize) -> Option<usize> {
    // SAFETY: the handle of the current thread is a constant and always valid.
    let previous = unsafe { SetThreadAffinityMask(GetCurrentThread(), process) };
    if previous == 0 {
        return None;
    }
    // SAFETY: as above.
    unsafe { SetThreadAffinityMask(GetCurrentThread(), previous) };
    Some(previous)
}

pub(super) fn allowed_cores() -> Option<Vec<usize>> {
    let mask = thread_mask(process_mask()?)?;
    Some((0..usize::BITS as usize).filter(|core| mask >> core & 1 == 1).collect())
}

fn mask_of(cores: &[usize]) -> io::Result<usize> {
    if cores.iter().any(|core| *core >= usize::BITS as usize) {
        return Err(io::Error::from_raw_os_error(ERROR_INVALID_PARAMETER as i32));
    }
    Ok(cores.iter().fold(0, |mask, core| mask | 1 << core))
}

pub(super) fn pin_current_thread_to(cores: &[usize]) -> io::Result<()> {
    let mask = mask_of(cores)?;
    // SAFETY: the handle of the current thread is a constant and always valid.
    let previous = unsafe { SetThreadAffinityMask(GetCurrentThread(), mask) };
    if previous != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a thread starts is not bound as it is, so the process is.
pub(super) fn keep_to(cores: &[usize]) -> io::Result<()> {
    let mask = mask_of(cores)?;
    // SAFETY: the handle of the current process is a constant and always valid.
    let kept = unsafe { SetProcessAffinityMask(GetCurrentProcess(), mask) };
    if kept != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// There is nothing that forbids it but the cores themselves, so nothing is tried either.
pub(super) fn forbidden() -> Option<io::Error> {
    None
}

pub(super) fn current_core() -> Option<usize> {
    // SAFETY: takes no argument and cannot fail.
    Some(unsafe { GetCurrentProcessorNumber() } as usize)
}

pub(super) fn numa_node(core: usize) -> Option<usize> {
    const NO_NODE: u8 = u8::MAX;
    let mut node = NO_NODE;
    // SAFETY: `node` is valid for writing; a number of no core is an error.
    let found = unsafe { GetNumaProcessorNode(u8::try_from(core).ok()?, &mut node) } != 0;
    (found && node != NO_NODE).then_some(usize::from(node))
}

pub(super) fn siblings(_core: usize) -> Vec<usize> {
    Vec::new()
}
