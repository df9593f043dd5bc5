//! Which core a thread runs on, and where that core lies.
//!
//! A core here is what the operating system schedules on: with simultaneous
//! multithreading, two of them share one physical core ([`siblings`]) and are no place to
//! measure a server and its generator apart from each other.

// What this module needs of an OS: the functions below, of the same names.
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

use std::io;

/// The cores this process may use, in rising order; never empty.
///
/// It asks for the calling thread, so a pinned thread gets its own core only: ask before
/// pinning. Where the operating system does not say, it is as many cores, from 0, as the
/// standard library would run threads on. On Windows, the first 64 at most.
pub fn allowed_cores() -> Vec<usize> {
    match native::allowed_cores() {
        Some(cores) if !cores.is_empty() => cores,
        _ => (0..std::thread::available_parallelism().map_or(1, |cores| cores.get())).collect(),
    }
}

/// Binds the calling thread to one core. Threads it starts afterwards inherit that on
/// Linux, and do not on Windows.
///
/// # Errors
/// As the operating system says it: `EINVAL` on Linux and `ERROR_INVALID_PARAMETER` on
/// Windows if there is no such core or the process may not use it; see [`allowed_cores`].
pub fn pin_current_thread(core: usize) -> io::Result<()> {
    pin_current_thread_to(&[core])
}

/// Binds the calling thread to a set of cores, among which the operating system chooses.
/// Otherwise as [`pin_current_thread`].
///
/// # Errors
/// Also if the set is empty; a core that does not exist is an error on Windows, and on
/// Linux only if no other is left.
pub fn pin_current_thread_to(cores: &[usize]) -> io::Result<()> {
    native::pin_current_thread_to(cores)
}

/// Why this process may bind no thread to any core, if it may not: a container's filter or a security module
/// forbids it, whatever the cores. On Linux that is found out by binding the calling thread to the cores that it has;
/// nothing on Windows forbids it.
pub fn forbidden() -> Option<io::Error> {
    native::forbidden()
}

/// Binds the calling thread to a set of cores, if this process may bind threads at all. Gives why it may not, if
/// so: then the thread runs wherever the system likes.
///
/// # Errors
/// As [`pin_current_thread_to`], where it is these cores that are refused.
pub fn pin_where_permitted(cores: &[usize]) -> io::Result<Option<io::Error>> {
    where_permitted(pin_current_thread_to(cores))
}

/// Binds the calling thread to a set of cores and with it those that it starts afterwards, on Windows all of this
/// process. Otherwise as [`pin_where_permitted`].
///
/// # Errors
/// As there.
pub fn keep_to_where_permitted(cores: &[usize]) -> io::Result<Option<io::Error>> {
    where_permitted(native::keep_to(cores))
}

fn where_permitted(bound: io::Result<()>) -> io::Result<Option<io::Error>> {
    match bound {
        Ok(()) => Ok(None),
        Err(error) => match forbidden() {
            Some(why) => Ok(Some(why)),
            None => Err(error),
        },
    }
}

/// The core the calling thread runs on at this moment.
pub fn current_core() -> Option<usize> {
    native::current_core()
}

/// The NUMA node of a core: the memory of that node is nearest to it. `None` if there is no
/// such core, or the system has no NUMA nodes.
pub fn numa_node(core: usize) -> Option<usize> {
    native::numa_node(core)
}

/// The other cores that share the physical core of this one, in rising order; empty if there
/// is none, or the operating system does not say.
pub fn siblings(core: usize) -> Vec<usize> {
    native::siblings(core).into_iter().filter(|other| *other != core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_pinned() {
        let cores = allowed_cores();
        assert!(cores.is_sorted() && !cores.is_empty(), "{cores:?}");
        std::thread::scope(|scope| {
            for core in cores {
                scope.spawn(move || {
                    pin_current_thread(core).expect("an allowed core");
                    assert_eq!(current_core(), Some(core));
                    assert_eq!(allowed_cores(), [core]);
                });
            }
        });
    }

    #[test]
    fn a_thread_keeps_to_a_set_of_cores() {
        let cores = allowed_cores();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_current_thread_to(&cores).expect("all allowed cores");
                assert_eq!(allowed_cores(), cores);
                assert!(pin_current_thread_to(&[]).is_err(), "no core at all");
                assert_eq!(allowed_cores(), cores);
            });
        });
    }

    #[test]
    fn where_binding_is_permitted_a_wrong_core_is_still_an_error() {
        let cores = allowed_cores();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(forbidden().is_none());
                assert_eq!(allowed_cores(), cores, "to find out changes nothing");
                assert!(pin_where_permitted(&cores[..1]).expect("an allowed core").is_none());
                assert_eq!(allowed_cores(), cores[..1]);
                assert!(pin_where_permitted(&[1 << 20]).is_err());
            });
        });
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        for core in [1000, 1 << 20, usize::MAX] {
            let error = pin_current_thread(core).expect_err("no such core");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert_eq!(numa_node(core), None);
            assert!(siblings(core).is_empty());
        }
    }

    #[test]
    fn siblings_share_a_node_and_know_each_other() {
        for core in allowed_cores() {
            for sibling in siblings(core) {
                assert!(sibling != core && siblings(sibling).contains(&core));
                assert_eq!(numa_node(sibling), numa_node(core));
            }
        }
    }
}
