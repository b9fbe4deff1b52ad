//! Reads the resident memory of this process.

use std::fs;

/// Resident memory, in kibibytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Now.
    pub now_kib: u64,
    /// The peak so far.
    pub peak_kib: u64,
}

impl Resident {
    /// Returns the memory of this process, or `None` on systems without `/proc`.
    pub fn of_process() -> Option<Self> {
        parse(&fs::read_to_string("/proc/self/status").ok()?)
    }
}

fn parse(status: &str) -> Option<Resident> {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(Resident { now_kib: value("VmRSS")?, peak_kib: value("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_lines_are_found() {
        let status =
            "Name:\tmemory\nVmPeak:\t  9000 kB\nVmHWM:\t    5120 kB\nVmRSS:\t    4096 kB\n";
        assert_eq!(parse(status), Some(Resident { now_kib: 4096, peak_kib: 5120 }));
        assert_eq!(parse("Name:\tmemory\n"), None);
    }
}
