//! Which scenarios an implementation is not asked, or is asked in other words, and why.
//!
//! Always   These lists are whole, and no longer than need be: a scenario that is passed over and not listed is a
//!          failure, and so is one that is listed and runs.

/// Scenarios that have something in common.
pub(crate) struct Exception {
    /// What the implementation says of them.
    pub(crate) why: &'static str,
    /// The page, and the rules; with a number if it is not the page's first with these.
    pub(crate) scenarios: &'static [&'static str],
}

/// Envoy asks once for each request, and does not say when it is over. The server refuses to be asked so.
pub(crate) const IN_FLIGHT: Exception = Exception {
    why: "places in flight",
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

/// The store has no such question, and Envoy is told of a wait by having to wait.
pub(crate) const PATIENCE: Exception =
    Exception { why: "how long one would wait", scenarios: WITHIN };

/// RESP and HTTP have no such question either, but can look how long the wait would be.
pub(crate) const LOOKED_FIRST: Exception =
    Exception { why: "who is impatient looks before asking", scenarios: WITHIN };

/// Envoy has no word for it.
pub(crate) const RESET_OVER_HTTP: Exception = Exception {
    why: "an operator resets, over HTTP",
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

/// Lua's numbers are doubles, and a rule that needs larger ones is refused.
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

/// The server would decide without Redis.
pub(crate) const LARGE_TIMES: Exception = Exception {
    why: "times that doubles cannot count",
    scenarios: &[
        "calendar: 1/day calendar (2)",
        "nginx: 1r/s",
        "sliding_log: 2/s sliding-log",
        "token_bucket: 2/s burst 3 (3)",
    ],
};

/// Redis denies what the rule would admit.
pub(crate) const LARGE_COSTS: Exception =
    Exception { why: "costs that doubles cannot count", scenarios: &["smooth: 1/s smooth (3)"] };

/// A gate has none.
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
