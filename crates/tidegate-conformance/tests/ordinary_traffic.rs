//! How often two counters are wrong (T04) on realistic traffic: many clients, a few of them busy, each with requests at random
//! times at its own rate, most of them below the limit.
//!
//! Recorded logs contain personal data, so a seeded generator makes the requests. The test compares `sliding` with
//! `sliding-log`, which is exact. Neither denies a client below the limit. For a client at the limit they often deny different
//! requests, but nearly the same number of them.

use tidegate_core::{Limit, State, Timestamp};

const CLIENTS: usize = 2_000;
const REQUESTS: usize = 400_000;
/// The average requests per minute of the busiest client. The n-th client sends an n-th of that.
const BUSIEST_PER_MIN: f64 = 120.0;

/// A small random generator with a fixed seed, so the traffic is the same every time.
struct Random(u64);

impl Random {
    /// Returns a number between 0 and 1, and never 0.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "a random number is rounded")]
        let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        unit.max(f64::MIN_POSITIVE)
    }
}

struct Client {
    per_min: f64,
    next_us: f64,
    states: [State; 2],
}

// T04.
#[test]
fn on_ordinary_traffic_two_counters_deny_as_many_requests_as_the_log() {
    let rules = ["100/min sliding", "100/min sliding-log"];
    let limits = rules.map(|rule| rule.parse::<Limit>().expect("a good rule"));
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut clients: Vec<Client> = (1..=CLIENTS)
        .map(|rank| Client {
            per_min: BUSIEST_PER_MIN / f64::from(u32::try_from(rank).expect("few clients")),
            next_us: 0.0,
            states: limits.each_ref().map(|limit| limit.fresh(Timestamp::EPOCH)),
        })
        .collect();
    let (mut denied, mut denied_by_log, mut different) = (0_usize, 0_usize, 0_usize);
    let mut requests = 0_usize;
    while requests < REQUESTS {
        for client in &mut clients {
            // One minute of each client at a time: clients share no state.
            let end_us = client.next_us + 60e6;
            while client.next_us < end_us {
                client.next_us += -random.unit().ln() * 60e6 / client.per_min;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time after the epoch"
                )]
                let now = Timestamp::from_micros(client.next_us as u64);
                let answers: Vec<bool> = limits
                    .iter()
                    .zip(&mut client.states)
                    .map(|(limit, state)| limit.decide(state, now, 1).is_allow())
                    .collect();
                requests += 1;
                denied += usize::from(!answers[0]);
                denied_by_log += usize::from(!answers[1]);
                different += usize::from(answers[0] != answers[1]);
            }
        }
    }
    let found = format!(
        "{requests} requests; denied {denied}, by the log {denied_by_log}; different {different}"
    );
    println!("{found}");
    assert!(denied_by_log * 200 > requests, "too few denials to compare: {found}");
    assert!(denied.abs_diff(denied_by_log) * 1_000 <= requests, "one in a thousand: {found}");
    assert!(different * 4 <= denied_by_log * 5, "five differences for four denials: {found}");
}
