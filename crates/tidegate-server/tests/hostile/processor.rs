//! How the CPU is shared.

use crate::harness::eventually;
use std::time::{Duration, Instant};

/// This thread, and those that it starts from now on, have the processor when nobody else wants it. Peers of a real server
/// are on other machines: what they do must not be mistaken for what the server does about it.
pub(crate) fn gives_way() {
    rustix::process::nice(19).expect("everybody may be modest");
}

/// How long the workers of all servers in this process have had a processor. Who starts its server alone has the only one.
pub(crate) fn workers_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let paths = tasks.map(|task| task.expect("it can be read").path());
    // A thread that is no more has no files.
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let workers = paths.filter(|task| read(task.join("comm")).starts_with("worker-"));
    let nanos = |stat: &str| stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    workers
        .map(|task| Duration::from_nanos(nanos(&read(task.join("schedstat"))).unwrap_or(0)))
        .sum()
}

/// How long the workers have had a processor for this, and how long it took.
pub(crate) fn workers_time_of<T>(work: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let (before, since) = (workers_time(), Instant::now());
    let done = work();
    (done, workers_time().saturating_sub(before), since.elapsed())
}

/// The workers have nothing to do, soon: of a stretch of 200 ms, they have the processor for less than 5.
pub(crate) fn assert_idle(after: &str) {
    const STRETCH: Duration = Duration::from_millis(200);
    const IDLE_MAX: Duration = Duration::from_millis(5);
    eventually(after, Duration::from_secs(2), || {
        workers_time_of(|| std::thread::park_timeout(STRETCH)).1 < IDLE_MAX
    });
}
