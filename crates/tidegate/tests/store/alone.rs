//! A test in a process of its own: what it has in memory is its own, whatever runs beside it.

use std::process::Command;

const ALONE: &str = "TIDEGATE_ALONE";

/// Runs the test of this name, `module::name`, in a process of its own.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return test();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed on its own, see above");
    assert!(printed.contains("1 passed"), "there is no test `{name}`");
}

/// What this process has in memory, in bytes; nothing on systems without `/proc`.
pub(crate) fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// The most that it ever had.
pub(crate) fn peak() -> Option<u64> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}
