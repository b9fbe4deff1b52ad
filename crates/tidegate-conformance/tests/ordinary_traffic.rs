//! How often two counters are wrong (T04) on traffic as services see it: many clients, a few of them
//! busy, each asking at random times at its own pace, most of them below the limit.
//!
//! Recorded logs belong to somebody, so this is drawn by a seeded generator. Compared is `sliding` with
//! `sliding-log`, which is exact. Of clients below the limit none is refused by either. Of those at the
//! limit, not always the same requests are refused: there the two differ about as often as they
//! refuse. But nearly as many are.

use tidegate_core::{Limit, State, Timestamp};

const CLIENTS: usize = 2_000;
const REQUESTS: usize = 400_000;
/// The busiest client asks so often a minute on average; the n-th one an n-th of that.
const BUSIEST_PER_MIN: f64 = 120.0;

/// A small generator with a fixed seed: the traffic is the same every time.
struct Random(u64);

impl Random {
    /// Between 0 and 1, and never 0.
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

#[test]
fn t04_on_ordinary_traffic_two_counters_decide_as_the_log_does() {
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
    let (mut denied, mut denied_by_log, mut otherwise) = (0_usize, 0_usize, 0_usize);
    let mut asked = 0_usize;
    while asked < REQUESTS {
        for client in &mut clients {
            // One minute of each client at a time: they do not share anything.
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
                asked += 1;
                denied += usize::from(!answers[0]);
                denied_by_log += usize::from(!answers[1]);
                otherwise += usize::from(answers[0] != answers[1]);
            }
        }
    }
    let found = format!(
        "{asked} asked; denied {denied}, by the log {denied_by_log}; decided otherwise {otherwise}"
    );
    println!("{found}");
    assert!(denied_by_log * 200 > asked, "the limit is felt, or this shows nothing: {found}");
    assert!(denied.abs_diff(denied_by_log) * 1_000 <= asked, "one in a thousand: {found}");
    assert!(otherwise * 4 <= denied_by_log * 5, "five for four that are refused: {found}");
}
