//! Cores on Linux: the scheduler's masks, and `/sys/devices/system/cpu`.

use std::{fs, io};

/// The kernel can be built for at most 8192 cores, which is more than `cpu_set_t` holds.
const MOST_CORES: usize = 8192;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
type Mask = [libc::c_ulong; MOST_CORES / WORD_BITS];

pub(super) fn allowed_cores() -> Option<Vec<usize>> {
    let mut mask: Mask = [0; MOST_CORES / WORD_BITS];
    let result =
        // SAFETY: the kernel writes at most the bytes it is told of, all within `mask`; to it a
        // set of cores is an array of long words.
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    let allowed = |core: &usize| mask[core / WORD_BITS] >> (core % WORD_BITS) & 1 == 1;
    (result == 0).then(|| (0..MOST_CORES).filter(allowed).collect())
}

pub(super) fn pin_current_thread_to(cores: &[usize]) -> io::Result<()> {
    let mut mask: Mask = [0; MOST_CORES / WORD_BITS];
    for core in cores {
        let Some(word) = mask.get_mut(core / WORD_BITS) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        *word |= 1 << (core % WORD_BITS);
    }
    // SAFETY: the kernel reads the bytes it is told of, all within `mask`.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a thread starts is bound as it is.
pub(super) fn keep_to(cores: &[usize]) -> io::Result<()> {
    pin_current_thread_to(cores)
}

pub(super) fn forbidden() -> Option<io::Error> {
    pin_current_thread_to(&super::allowed_cores()).err()
}

pub(super) fn current_core() -> Option<usize> {
    // SAFETY: takes no argument; it answers -1 where it is missing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

pub(super) fn numa_node(core: usize) -> Option<usize> {
    // The core's folder links to its node: `node0`.
    fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}"))
        .ok()?
        .find_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

pub(super) fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|list| parse_list(&list)).unwrap_or_default()
}

/// The kernel's notation of a set of cores: `0-3,8`. What is no such list is left out, and
/// so is what lies beyond the largest core there can be.
fn parse_list(list: &str) -> Vec<usize> {
    let mut cores: Vec<usize> = list
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            Some(first..=last.min(MOST_CORES - 1))
        })
        .flatten()
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(parse_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_list("5"), [5]);
        assert_eq!(parse_list("0,4"), [0, 4]);
        assert_eq!(parse_list("8191-18446744073709551615"), [8191]);
        assert!(parse_list("\n").is_empty() && parse_list("3-1,a-b,-").is_empty());
    }

    proptest! {
        #[test]
        fn any_list_parses_to_rising_cores(list in "[0-9,\\- \\n]{0,40}") {
            let cores = parse_list(&list);
            prop_assert!(cores.is_sorted_by(|a, b| a < b));
            prop_assert!(cores.last() < Some(&MOST_CORES));
        }
    }
}
