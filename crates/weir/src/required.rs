//! Tests of what a machine may lack, such as io_uring, which most containers forbid: they say so
//! and pass, unless `WEIR_REQUIRE` insists.

// The tests in `tests/` have this file as a module of their own: it knows nothing of the library.

/// Whether what was tried cannot run here; the reason is printed.
///
/// # Panics
/// If it cannot, and the comma-separated names in `WEIR_REQUIRE` hold `name` or `all`.
pub fn cannot_run<T>(name: &str, tried: Result<T, impl std::fmt::Display>) -> bool {
    let Err(reason) = tried else { return false };
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    let insisted = required.split(',').map(str::trim).any(|one| one == name || one == "all");
    assert!(!insisted, "required by WEIR_REQUIRE, but {reason}");
    eprintln!("not run: {reason}");
    true
}
