//! nginx's `limit_req`: the lines of `ngx_http_limit_req_lookup` and `_account`, on `excess` and `last`.
//!
//! nginx has no cost. A request of cost n is n requests in the same millisecond, all or none.

use super::{ExpectedDecision, Oracle, smallest, span};
use tidegate_core::{Retry, Span, Timestamp, Verdict};

/// One key of one zone.
#[derive(Clone, Debug)]
pub struct Nginx {
    /// Thousandths of a request per second.
    rate: i128,
    burst: i128,
    /// `None` is `nodelay`.
    delay: Option<i128>,
    node: Option<Node>,
}

/// The fields of nginx's `ngx_http_limit_req_node_t` that matter.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// In thousandths. Below zero only after a refund, which nginx does not have.
    excess: i128,
    last_ms: i128,
}

const REQUEST: i128 = 1_000;

impl Nginx {
    /// Starts a zone with `count` requests per second or minute, which nginx rounds down to thousandths per second.
    pub fn new(count: u64, per_second: bool, burst: u64, delay: Option<u64>) -> Self {
        let scale = if per_second { 1 } else { 60 };
        Self {
            rate: i128::from(count) * 1_000 / scale,
            burst: i128::from(burst) * 1_000,
            delay: delay.map(|delay| i128::from(delay) * 1_000),
            node: None,
        }
    }

    /// Returns the excess of a request of this cost.
    fn excess(&self, now_ms: i128, cost: i128) -> i128 {
        let Some(Node { excess, last_ms }) = self.node else { return (cost - 1) * REQUEST };
        let ms = now_ms - last_ms;
        let excess = excess - self.rate * ms / 1_000 + REQUEST;
        excess.max(0) + (cost - 1) * REQUEST
    }

    fn admits(&self, now_ms: i128, cost: i128) -> bool {
        self.excess(now_ms, cost) <= self.burst
    }

    /// Returns the smallest wait after which `holds` is true at that millisecond, or the latest time if that is earlier.
    fn wait_until(now: Timestamp, holds: impl Fn(i128) -> bool) -> Span {
        let then = |us: u128| now_ms(u128::from(now.as_micros()) + us);
        // In 2^80 µs the slowest zone has leaked more than any burst.
        let wait = smallest(1 << 80, |us| holds(then(us)));
        span(wait.min(u128::from(u64::MAX - now.as_micros())))
    }

    fn answer(&self, verdict: Verdict, now: Timestamp) -> ExpectedDecision {
        let limit = u64::try_from(self.burst / REQUEST + 1).expect("a burst is not that large");
        let refused = |count: u128| {
            let count = i128::try_from(count).expect("a count is not that large");
            !self.admits(now_ms(now.as_micros().into()), count)
        };
        let first_refused = 1 + smallest(u128::from(limit), |count| refused(count + 1));
        ExpectedDecision {
            verdict,
            limit,
            remaining: u64::try_from(first_refused - 1).expect("it is at most the limit"),
            reset_after: Self::wait_until(now, |now_ms| {
                self.node.is_none_or(|node| {
                    node.excess + REQUEST <= self.rate * (now_ms - node.last_ms) / 1_000
                })
            }),
        }
    }
}

impl Oracle for Nginx {
    fn decide(&mut self, now: Timestamp, cost: u64) -> ExpectedDecision {
        let (ms, cost) = (now_ms(now.as_micros().into()), i128::from(cost));
        if cost == 0 {
            return self.answer(Verdict::Allow, now);
        }
        let excess = self.excess(ms, cost);
        if excess > self.burst {
            let retry = if (cost - 1) * REQUEST > self.burst {
                Retry::Never
            } else {
                Retry::After(Self::wait_until(now, |now_ms| self.admits(now_ms, cost)))
            };
            return self.answer(Verdict::Deny(retry), now);
        }
        self.node = Some(Node { excess, last_ms: ms });
        let delay_ms = match self.delay {
            Some(delay) if excess > delay => (excess - delay) * 1_000 / self.rate,
            _ => 0,
        };
        let verdict = match u64::try_from(delay_ms).expect("a delay is not below zero") {
            0 => Verdict::Allow,
            delay_ms => Verdict::Wait(Span::from_millis(delay_ms)),
        };
        self.answer(verdict, now)
    }

    fn refund(&mut self, _now: Timestamp, cost: u64) {
        if let Some(node) = &mut self.node {
            node.excess = (node.excess - i128::from(cost) * REQUEST).max(-REQUEST);
        }
    }
}

fn now_ms(us: u128) -> i128 {
    i128::try_from(us / 1_000).expect("a time is not that large")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits in milliseconds; `None` means denied.
    fn waits(mut nginx: Nginx, at_ms: &[u64]) -> Vec<Option<u64>> {
        let mut wait = |ms: &u64| match nginx.decide(Timestamp::from_micros(ms * 1_000), 1).verdict
        {
            Verdict::Allow => Some(0),
            Verdict::Wait(wait) => Some(wait.as_micros() / 1_000),
            Verdict::Deny(_) => None,
        };
        at_ms.iter().map(&mut wait).collect()
    }

    #[test]
    fn nginxs_known_sequences_are_reproduced() {
        let burst = |delay| Nginx::new(10, true, 5, delay);
        let at_once = [0; 7];
        let delayed = [Some(0), Some(100), Some(200), Some(300), Some(400), Some(500), None];
        assert_eq!(waits(burst(Some(0)), &at_once), delayed);
        let two_stages = [Some(0), Some(0), Some(0), Some(0), Some(100), Some(200), None];
        assert_eq!(waits(burst(Some(3)), &at_once), two_stages);
        let strict = Nginx::new(10, true, 0, Some(0));
        assert_eq!(waits(strict, &[0, 99, 100]), [Some(0), None, Some(0)]);
        let nodelay = waits(burst(None), &[0, 0, 0, 0, 0, 0, 0, 100, 199, 200]);
        assert_eq!(nodelay[5..], [Some(0), None, Some(0), None, Some(0)]);
    }

    #[test]
    fn one_a_minute_is_one_in_62_and_a_half_seconds() {
        let nginx = Nginx::new(1, false, 0, None);
        assert_eq!(waits(nginx, &[0, 60_000, 62_499, 62_500]), [Some(0), None, None, Some(0)]);
    }
}
