//! Metrics of the process on Linux, under the names that every Prometheus client uses: `process_*`.
//!
//! They are read from `/proc/self` at each collection, because the systemd unit hides the rest of `/proc`. Values that cannot be read
//! are left out.

use super::counter_f64;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fmt::Error;
use std::fs;
use std::sync::LazyLock;

/// Start of the system in seconds since 1970. Read once, because the difference of the clocks varies and the start of a process must
/// not.
static BOOT_SECONDS: LazyLock<f64> = LazyLock::new(|| {
    seconds(clock_gettime(ClockId::Realtime)) - seconds(clock_gettime(ClockId::Boottime))
});

#[expect(clippy::cast_precision_loss, reason = "good to a microsecond")]
fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[derive(Debug)]
pub(super) struct Process;

/// Values of `/proc/self/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|it| parse(&it)) {
            encode_stat(&mut encoder, &stat)?;
        }
        if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
            // Without the descriptor of this directory.
            let open = descriptors.count().saturating_sub(1) as u64;
            encoder
                .encode_descriptor("process_open_fds", "Open descriptors", None, MetricType::Gauge)?
                .encode_gauge(&open)?;
        }
        let Some(max) = getrlimit(Resource::Nofile).current else { return Ok(()) };
        encoder
            .encode_descriptor(
                "process_max_fds",
                "Maximum number of open descriptors",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&max)
    }
}

#[expect(clippy::cast_precision_loss, reason = "both are small")]
fn encode_stat(encoder: &mut DescriptorEncoder<'_>, stat: &Stat) -> Result<(), Error> {
    let ticks_per_second = clock_ticks_per_second() as f64;
    let help = "CPU time in seconds";
    let mut cpu =
        encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
    counter_f64(&mut cpu, stat.cpu_ticks / ticks_per_second)?;
    let resident_bytes = stat.resident_pages * page_size() as f64;
    let started = *BOOT_SECONDS + stat.start_ticks / ticks_per_second;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Resident memory", resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory", stat.virtual_bytes),
        ("process_start_time_seconds", "Start of the process, in seconds since 1970", started),
    ] {
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Parses `/proc/self/stat`: proc(5). The name of the program, in brackets, may have spaces and brackets in it.
fn parse(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first of these is the third field.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let stat =
            "7 (a) R (b) S 1 7 7 0 -1 4194560 90 0 0 0 150 50 0 0 20 0 3 0 1234 8192 3 184467";
        let expected = Stat {
            cpu_ticks: 200.0,
            start_ticks: 1234.0,
            virtual_bytes: 8192.0,
            resident_pages: 3.0,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a) S 1"), None);
    }
}
