//! CPU time of the server's workers.

use crate::harness::eventually;
use std::time::{Duration, Instant};

/// Lowers the priority of this thread and of the threads that it starts from now on. Clients of a real server run on other
/// machines, so their CPU time must not be mistaken for the server's.
pub(crate) fn lower_priority() {
    rustix::process::nice(19).expect("any process may lower its priority");
}

/// Returns the CPU time of the workers of all servers in this process. A test that started its server exclusively has the
/// only one.
pub(crate) fn workers_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    let paths = tasks.map(|task| task.expect("the entry can be read").path());
    // A thread that has ended has no files.
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let workers = paths.filter(|task| read(task.join("comm")).starts_with("worker-"));
    let nanos = |stat: &str| stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    workers
        .map(|task| Duration::from_nanos(nanos(&read(task.join("schedstat"))).unwrap_or(0)))
        .sum()
}

/// Returns the result of `work`, the CPU time that the workers used during it, and its duration.
pub(crate) fn workers_time_of<T>(work: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let (before, since) = (workers_time(), Instant::now());
    let done = work();
    (done, workers_time().saturating_sub(before), since.elapsed())
}

/// Waits until the workers are idle: they use less than 5 ms of CPU time in 200 ms.
pub(crate) fn assert_idle(after: &str) {
    const STRETCH: Duration = Duration::from_millis(200);
    const IDLE_MAX: Duration = Duration::from_millis(5);
    eventually(after, Duration::from_secs(2), || {
        workers_time_of(|| std::thread::park_timeout(STRETCH)).1 < IDLE_MAX
    });
}
