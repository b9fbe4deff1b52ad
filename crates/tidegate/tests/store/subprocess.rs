//! Runs a test in a process of its own, so that other tests do not change its memory.

use std::process::Command;

/// Set to the name of the test in its own process.
const TEST: &str = "TIDEGATE_TEST_PROCESS";

/// Runs the test of this name, `module::name`, in a process of its own.
pub(crate) fn in_own_process(name: &str, test: impl FnOnce()) {
    if std::env::var_os(TEST).is_some_and(|test| test == name) {
        return test();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(TEST, name)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed in its own process, see above");
    assert!(printed.contains("1 passed"), "there is no test `{name}`");
}

/// Returns the resident memory of this process in bytes; `None` on systems without `/proc`.
pub(crate) fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// Returns the largest resident memory that this process had.
pub(crate) fn peak() -> Option<u64> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}
