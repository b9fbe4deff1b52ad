//! A rule of every kind that counts requests; `concurrency`, which counts requests in flight, is left out.

/// Each rule has its own numbers, so that a test that mixes two of them up fails.
pub(crate) const EVERY: [&str; 17] = [
    "100/s burst 20",
    "3/s paced",
    "30/s start empty",
    "7/min leaky capacity 30",
    "40/s fixed",
    "40/s fixed from first",
    "40/h fixed from 2024-01-01T00:17:00+08:00",
    "25/day calendar",
    "64/s sliding-log",
    "61/s sliding",
    "10r/s burst=15 nodelay",
    "10r/s burst=15",
    "10r/s burst=15 delay=5",
    "10/s queue capacity 12",
    "3/s queue capacity 12 wait 2s",
    "5/s smooth",
    "5/s warmup 1s",
];
