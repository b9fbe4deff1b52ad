//! The scenarios that an implementation does not support, or supports only by emulating an operation, and why.
//!
//! Always   The lists are exact: the test fails if a scenario is skipped and not listed, or listed and not skipped.

/// Scenarios with the same reason.
pub(crate) struct Exception {
    /// The reason, as the implementation reports it.
    pub(crate) why: &'static str,
    /// The page and the rules of each scenario; with a number if it is not the page's first with these rules.
    pub(crate) scenarios: &'static [&'static str],
}

/// Envoy's protocol does not report the end of a request, so the server rejects concurrency limits.
pub(crate) const IN_FLIGHT: Exception = Exception {
    why: "requests in flight",
    scenarios: &[
        "concurrency: concurrency 5",
        "concurrency: concurrency 3 wait 1s",
        "concurrency: concurrency 2",
        "concurrency: concurrency 5 (2)",
        "concurrency: concurrency 3",
        "concurrency: concurrency 2 lease 30s",
        "concurrency: concurrency 3 lease 10s",
        "concurrency: concurrency 5 (3)",
        "concurrency: concurrency 2 lease 60s",
        "concurrency: concurrency 3 (2)",
        "concurrency: concurrency 1 lease 1s",
        "concurrency: concurrency 1 lease 10s",
        "concurrency: concurrency 1 lease 10s (2)",
        "concurrency: concurrency 1",
        "concurrency: concurrency 9007199254740992 lease 36525day",
    ],
};

const WITHIN: &[&str] = &[
    "nginx: 10r/s burst=5 (2)",
    "queue: 2/s queue",
    "smooth: 5/s smooth (2)",
    "smooth: 10/s smooth (3)",
    "warmup: 5/s warmup 1s (3)",
];

/// `RedisLimiter` has no request with a longest wait, and Envoy's protocol does not report a wait.
pub(crate) const LONGEST_WAIT: Exception =
    Exception { why: "a longest acceptable wait", scenarios: WITHIN };

/// RESP and HTTP have no request with a longest wait either, but a peek reports the wait.
pub(crate) const EMULATED_WAIT: Exception =
    Exception { why: "a maximum wait is emulated by a peek", scenarios: WITHIN };

/// Envoy's protocol has no reset.
pub(crate) const RESET_OVER_HTTP: Exception = Exception {
    why: "a reset is sent over HTTP",
    scenarios: &[
        "calendar: 10/day calendar",
        "fixed: 5/min fixed",
        "leaky: 10/s leaky",
        "nginx: 10r/s burst=5 nodelay (2)",
        "queue: 2/s queue capacity 2 (2)",
        "sliding: 10/min sliding (2)",
        "sliding_log: 5/10s sliding-log (2)",
        "smooth: 1/min smooth",
        "token_bucket: 1/s burst 5",
    ],
};

/// Lua's numbers are doubles, and a rule with larger numbers is rejected.
pub(crate) const LARGE_RULES: Exception = Exception {
    why: "more than doubles can count",
    scenarios: &[
        "concurrency: concurrency 9007199254740992 lease 36525day",
        "fixed: 9007199254740992/36525day fixed",
        "nginx: 10000000000r/s burst=9007199254740 nodelay",
        "sliding: 9007199254740992/36525day sliding",
        "token_bucket: 1/36525day burst 9007199254740992",
    ],
};

/// With such times, the server's fallback would decide.
pub(crate) const LARGE_TIMES: Exception = Exception {
    why: "times that doubles cannot count",
    scenarios: &[
        "calendar: 1/day calendar (2)",
        "nginx: 1r/s",
        "sliding_log: 2/s sliding-log",
        "token_bucket: 2/s burst 3 (3)",
    ],
};

/// The store denies such a cost, although the rule admits it.
pub(crate) const LARGE_COSTS: Exception =
    Exception { why: "costs that doubles cannot count", scenarios: &["smooth: 1/s smooth (3)"] };

/// A gate has no keys.
pub(crate) const KEYS: Exception = Exception {
    why: "several keys",
    scenarios: &[
        "concurrency: concurrency 2",
        "fixed: 1/30min fixed",
        "nginx: 10r/s burst=5 nodelay (2)",
        "sliding: 10/min sliding (2)",
        "sliding_log: 5/10s sliding-log (2)",
        "smooth: 1/min smooth",
        "token_bucket: 1/s burst 5",
        "warmup: 5/s warmup 1s (3)",
    ],
};
