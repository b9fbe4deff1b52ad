//! Simulation of outages with simulated time: real shares, and a network that fails at random.
//!
//! Redis is a limiter in memory, so its charges obey the bound of the limit. Arrivals are Poisson. The tests check the bound of
//! `docs/decisions/0040`: what all nodes together admit, in every interval.

use super::*;
use crate::fallback::OnError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_core::Timestamp;
use tidegate_testbed::Random;

const NODES: usize = 3;
const RATE: u64 = 200;
const BURST: u64 = 50;
const SECOND: u64 = 1_000_000;
const DEADLINE: u64 = 20_000;
/// As in the circuit breaker.
const FAILURES_MAX: u32 = 3;
const FAULT_BEGINS: u64 = 5 * SECOND;
const DURATION: u64 = 15 * SECOND;
const SEEDS: u64 = 20;

/// A fault of the network or of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Redis hangs, and runs the requests afterwards.
    Hang,
    /// Redis runs the requests at once, but its replies are late.
    Delay,
    /// Half of the requests or of their replies are lost.
    Loss,
    /// Connections are half open, and each node notices it at its own time.
    HalfOpen,
}

/// The arrivals of requests.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How many requests per second arrive at all nodes together.
    per_second: u64,
    /// Each node's part of them, in tenths.
    tenths: [u64; NODES],
    /// The same after the fault has begun.
    after: [u64; NODES],
}

impl Load {
    fn even(per_second: u64) -> Self {
        // Three of nine requests each.
        Self { per_second, tenths: [3; NODES], after: [3; NODES] }
    }
}

struct Node {
    fallback: Fallback<ManualClock>,
    failures: u32,
    /// When the circuit breaker lets requests through again.
    breaker_open_until: u64,
    /// When its connections work again.
    recovers_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The deadline of a request passes.
    TimedOut(usize),
    /// Redis runs a request that it received while it hung.
    Late,
}

struct Simulation {
    clock: ManualClock,
    redis: Limiter<ManualClock>,
    nodes: Vec<Node>,
    random: Random,
    fault: Fault,
    ends: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    admitted: Vec<u64>,
}

const KEY: &[u8] = b"key";

impl Simulation {
    /// Creates a simulation with a fault of this length, after which the nodes recover within `stagger`.
    fn new(seed: u64, fault: Fault, lasts: u64, stagger: u64) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let rule: Rule = format!("{RATE}/s burst {BURST}").parse().expect("it is a rule");
        let mut random = Random(seed);
        let ends = FAULT_BEGINS + lasts;
        let on_error = OnError::Local { nodes: NODES as u64 };
        let node = |_| Node {
            fallback: Fallback::with_clock(&rule, on_error, clock.clone()),
            failures: 0,
            breaker_open_until: 0,
            recovers_at: ends + random.below(stagger),
        };
        let nodes = (0..NODES).map(node).collect();
        let redis = Limiter::with_clock(rule.clone(), clock.clone());
        let (events, admitted) = (BinaryHeap::new(), Vec::new());
        Self { clock, redis, nodes, random, fault, ends, events, number: 0, admitted }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// Schedules the arrivals. The time between two is exponential.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a run is short"
    )]
    fn arrive(&mut self, load: &Load) {
        for node in 0..NODES {
            let mut now = 0;
            while now < DURATION {
                let tenths = if now < FAULT_BEGINS { load.tenths } else { load.after };
                let part = tenths[node] as f64 / tenths.iter().sum::<u64>() as f64;
                // A node without requests gets one in a thousand seconds.
                let rate = load.per_second as f64 * part.max(1e-6);
                let uniform = (self.random.below(1 << 52) + 1) as f64 / (1_u64 << 52) as f64;
                now += (-uniform.ln() / rate * SECOND as f64).ceil() as u64;
                self.push(now, Event::Arrival(node));
            }
        }
    }

    /// Runs to the end. Returns when each request was admitted.
    async fn run(mut self, load: &Load) -> Vec<u64> {
        self.arrive(load);
        let mut before = 0;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.clock.set(Timestamp::from_micros(now));
            tokio::time::advance(Duration::from_micros(now - before)).await;
            before = now;
            match event {
                Event::Arrival(node) => self.request(node, now),
                Event::TimedOut(node) => {
                    self.fail(node, now);
                    self.decide_without_redis(node, now);
                }
                Event::Late => drop(self.redis.check(KEY)),
            }
        }
        self.admitted
    }

    fn request(&mut self, node: usize, now: u64) {
        if now < self.nodes[node].breaker_open_until {
            return self.decide_without_redis(node, now);
        }
        let fallback = &self.nodes[node].fallback;
        if fallback.still_denies(KEY, 1).is_some() {
            return;
        }
        let is_on = (FAULT_BEGINS..self.nodes[node].recovers_at).contains(&now);
        let is_lost = is_on && (self.fault != Fault::Loss || self.random.below(2) == 0);
        if !is_lost {
            let decision = fallback.confirm(KEY, 1, self.redis.check(KEY));
            self.nodes[node].failures = 0;
            if decision.is_allow() {
                self.admitted.push(now);
            }
            return;
        }
        self.push(now + DEADLINE, Event::TimedOut(node));
        let is_charged = match self.fault {
            Fault::Hang if now < self.ends => {
                self.push(self.ends, Event::Late);
                false
            }
            Fault::Hang | Fault::HalfOpen => false,
            Fault::Delay => true,
            Fault::Loss => self.random.below(2) == 0,
        };
        if is_charged {
            let _ = self.redis.check(KEY);
        }
    }

    fn fail(&mut self, node: usize, now: u64) {
        let pause = self.random.below(DEADLINE);
        let node = &mut self.nodes[node];
        node.failures += 1;
        if node.failures >= FAILURES_MAX {
            // With `Loss` a probe succeeds soon; otherwise probes fail until the end of the fault.
            let is_probed = self.fault == Fault::Loss;
            (node.failures, node.breaker_open_until) =
                (0, if is_probed { now + pause } else { node.recovers_at });
        }
    }

    fn decide_without_redis(&mut self, node: usize, now: u64) {
        if self.nodes[node].fallback.decide(KEY, 1).decision.is_allow() {
            self.admitted.push(now);
        }
    }

    /// Returns how long only some of the nodes reach Redis, plus one deadline.
    fn partial_time(&self) -> u64 {
        let back: Vec<u64> = self.nodes.iter().map(|node| node.recovers_at).collect();
        let last = *back.iter().max().expect("there are nodes");
        let first = *back.iter().min().expect("there are nodes");
        DEADLINE + if self.fault == Fault::Loss { last - FAULT_BEGINS } else { last - first }
    }
}

/// Returns by how much the worst interval exceeds the limit's own bound, in millionths of a request.
fn excess(admitted: &[u64]) -> i64 {
    let signed = |number: u64| i64::try_from(number).expect("a run is short");
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for (index, at) in (0_u64..).zip(admitted) {
        let above = signed(index * SECOND) - signed(RATE * at);
        least = least.min(above);
        most = most.max(above - least);
    }
    most + signed(SECOND) - signed(BURST * SECOND)
}

/// Checks all faults and seeds against the bound of the decision page.
async fn check_bound(load: &Load, lasts: u64, stagger: u64, bursts: u64, slack: u64) {
    for fault in [Fault::Hang, Fault::Delay, Fault::Loss, Fault::HalfOpen] {
        for seed in 0..SEEDS {
            let simulation = Simulation::new(seed, fault, lasts, stagger);
            let partial = simulation.partial_time();
            let admitted = simulation.run(load).await;
            let above = excess(&admitted);
            let most = (bursts * BURST + slack) * SECOND + RATE * partial;
            assert!(
                above <= i64::try_from(most).expect("a run is short"),
                "{fault:?} of {lasts} us, {load:?}, seed {seed}: {} above, {} allowed",
                above / 1_000_000,
                most / 1_000_000
            );
            assert!(admitted.len() as u64 >= RATE * 5, "requests were admitted");
        }
    }
}

/// A node does not know what Redis admitted to others since its own last reply: an n-th part of that, and rounding.
const SLACK: u64 = 2 * NODES as u64;

/// T33.
#[tokio::test(start_paused = true)]
async fn evenly_loaded_nodes_admit_at_most_one_extra_burst_in_an_outage() {
    for per_second in [210, 300, 600] {
        for (lasts, stagger) in [(SECOND / 5, 20_000), (3 * SECOND, 20_000), (3 * SECOND, 500_000)]
        {
            check_bound(&Load::even(per_second), lasts, stagger, 1, SLACK).await;
        }
    }
}

/// T33.
#[tokio::test(start_paused = true)]
async fn nodes_admit_at_most_two_extra_bursts_in_an_outage_under_any_load() {
    let spreads = [([10, 0, 0], [0, 5, 5]), ([7, 2, 1], [7, 2, 1]), ([1, 1, 8], [8, 1, 1])];
    for (tenths, after) in spreads {
        let load = Load { per_second: 600, tenths, after };
        check_bound(&load, 3 * SECOND, 20_000, 2, 0).await;
        check_bound(&load, SECOND / 5, 500_000, 2, 0).await;
    }
}
