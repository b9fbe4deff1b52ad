//! Outages of Redis in a time of their own: real shares, on a network that fails as a seed says.
//!
//! Redis is the limit itself, in memory; so the limit's bound holds for what it charges. Arrivals are Poisson. What is
//! checked is `docs/decisions/0040`: what all nodes together admit, in every interval.

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
/// As the circuit breaker has it.
const FAILURES_MAX: u32 = 3;
const BEGINS: u64 = 5 * SECOND;
const STORY: u64 = 15 * SECOND;
const SEEDS: u64 = 20;

/// What happens to requests on their way, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Redis stands still, and does afterwards what it was asked.
    Hang,
    /// Redis does at once what it is asked, and is heard of too late.
    Delay,
    /// Half of the requests or of their answers are lost.
    Loss,
    /// Connections lead nowhere, and each node finds that out by itself.
    HalfOpen,
}

/// How requests come.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How many all nodes together are asked in a second.
    per_second: u64,
    /// How much of it is each node's, in tenths.
    tenths: [u64; NODES],
    /// The same after the fault has begun: it may move.
    after: [u64; NODES],
}

impl Load {
    fn even(per_second: u64) -> Self {
        // Of nine requests each has three.
        Self { per_second, tenths: [3; NODES], after: [3; NODES] }
    }
}

struct Node {
    fallback: Fallback<ManualClock>,
    failures: u32,
    /// Until when nothing is sent to Redis.
    left_alone_until: u64,
    /// When its connections are good again.
    is_back: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// No answer has come in time.
    TimedOut(usize),
    /// Redis does what it was asked while it stood still.
    Late,
}

struct Story {
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

impl Story {
    /// A fault of this length, after which nodes are back one after the other within `stagger`.
    fn new(seed: u64, fault: Fault, lasts: u64, stagger: u64) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(0));
        let rule: Rule = format!("{RATE}/s burst {BURST}").parse().expect("it is a rule");
        let mut random = Random(seed);
        let ends = BEGINS + lasts;
        let on_error = OnError::Local { nodes: NODES as u64 };
        let node = |_| Node {
            fallback: Fallback::with_clock(&rule, on_error, clock.clone()),
            failures: 0,
            left_alone_until: 0,
            is_back: ends + random.below(stagger),
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

    /// Poisson: the time until the next request is exponential.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a story is short"
    )]
    fn arrive(&mut self, load: &Load) {
        for node in 0..NODES {
            let mut now = 0;
            while now < STORY {
                let tenths = if now < BEGINS { load.tenths } else { load.after };
                let part = tenths[node] as f64 / tenths.iter().sum::<u64>() as f64;
                // A node that is asked nothing is asked once in a thousand seconds.
                let rate = load.per_second as f64 * part.max(1e-6);
                let uniform = (self.random.below(1 << 52) + 1) as f64 / (1_u64 << 52) as f64;
                now += (-uniform.ln() / rate * SECOND as f64).ceil() as u64;
                self.push(now, Event::Arrival(node));
            }
        }
    }

    /// Tells it to its end: when each request was admitted.
    async fn tell(mut self, load: &Load) -> Vec<u64> {
        self.arrive(load);
        let mut before = 0;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.clock.set(Timestamp::from_micros(now));
            tokio::time::advance(Duration::from_micros(now - before)).await;
            before = now;
            match event {
                Event::Arrival(node) => self.ask(node, now),
                Event::TimedOut(node) => {
                    self.fail(node, now);
                    self.decide_alone(node, now);
                }
                Event::Late => drop(self.redis.check(KEY)),
            }
        }
        self.admitted
    }

    fn ask(&mut self, node: usize, now: u64) {
        if now < self.nodes[node].left_alone_until {
            return self.decide_alone(node, now);
        }
        let fallback = &self.nodes[node].fallback;
        if fallback.still_denies(KEY, 1).is_some() {
            return;
        }
        let is_on = (BEGINS..self.nodes[node].is_back).contains(&now);
        let is_lost = is_on && (self.fault != Fault::Loss || self.random.below(2) == 0);
        if !is_lost {
            let decision = fallback.warm(KEY, 1, self.redis.check(KEY));
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
            // What is lost now and then is tried again at once; what answers nobody, until it does.
            let is_tried = self.fault == Fault::Loss;
            (node.failures, node.left_alone_until) =
                (0, if is_tried { now + pause } else { node.is_back });
        }
    }

    fn decide_alone(&mut self, node: usize, now: u64) {
        if self.nodes[node].fallback.decide(KEY, 1).decision.is_allow() {
            self.admitted.push(now);
        }
    }

    /// For how long some nodes have Redis and others not, and one deadline for what was on its way.
    fn is_partial(&self) -> u64 {
        let back: Vec<u64> = self.nodes.iter().map(|node| node.is_back).collect();
        let last = *back.iter().max().expect("there are nodes");
        let first = *back.iter().min().expect("there are nodes");
        DEADLINE + if self.fault == Fault::Loss { last - BEGINS } else { last - first }
    }
}

/// By how much the busiest interval is above the limit's own bound, in millionths of a request.
fn excess(admitted: &[u64]) -> i64 {
    let signed = |number: u64| i64::try_from(number).expect("a story is short");
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for (place, at) in (0_u64..).zip(admitted) {
        let above = signed(place * SECOND) - signed(RATE * at);
        least = least.min(above);
        most = most.max(above - least);
    }
    most + signed(SECOND) - signed(BURST * SECOND)
}

/// The most that was above the bound, beside what the decision page says it may be.
async fn tell_all(load: &Load, lasts: u64, stagger: u64, bursts: u64, slack: u64) {
    for fault in [Fault::Hang, Fault::Delay, Fault::Loss, Fault::HalfOpen] {
        for seed in 0..SEEDS {
            let story = Story::new(seed, fault, lasts, stagger);
            let partial = story.is_partial();
            let admitted = story.tell(load).await;
            let above = excess(&admitted);
            let most = (bursts * BURST + slack) * SECOND + RATE * partial;
            assert!(
                above <= i64::try_from(most).expect("a story is short"),
                "{fault:?} of {lasts} us, {load:?}, seed {seed}: {} above, {} allowed",
                above / 1_000_000,
                most / 1_000_000
            );
            assert!(admitted.len() as u64 >= RATE * 5, "there was no load");
        }
    }
}

/// What Redis admitted to the others since a node was last answered is not known there: an n-th part of that, and what
/// is rounded up.
const SLACK: u64 = 2 * NODES as u64;

#[tokio::test(start_paused = true)]
async fn t33_evenly_loaded_nodes_admit_at_most_one_burst_more_for_an_outage() {
    for per_second in [210, 300, 600] {
        for (lasts, stagger) in [(SECOND / 5, 20_000), (3 * SECOND, 20_000), (3 * SECOND, 500_000)]
        {
            tell_all(&Load::even(per_second), lasts, stagger, 1, SLACK).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t33_nodes_admit_at_most_two_bursts_more_for_an_outage_however_load_is_spread() {
    let spreads = [([10, 0, 0], [0, 5, 5]), ([7, 2, 1], [7, 2, 1]), ([1, 1, 8], [8, 1, 1])];
    for (tenths, after) in spreads {
        let load = Load { per_second: 600, tenths, after };
        tell_all(&load, 3 * SECOND, 20_000, 2, 0).await;
        tell_all(&load, SECOND / 5, 500_000, 2, 0).await;
    }
}
