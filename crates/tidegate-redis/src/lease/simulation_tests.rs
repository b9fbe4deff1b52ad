//! Simulation of a hundred nodes with leases and a Redis that fails, with simulated time: the same seed gives the same run.
//!
//! Clocks run at different speeds, messages are delayed or lost, nodes pause or die, and lagging replicas take over, which each
//! node notices at its own time. Requests cost one to four, and in some runs the rule changes. No admission beyond the bound may
//! occur. Clocks do not stop: see `docs/decisions/0020-leases.md` for that.
//!
//! `TIDEGATE_SEEDS` is the number of runs: 200 in the test command, 10 000 in `cargo xtask leases`.

use super::LEASE_TIME;
use super::balance::{Grant, LeaseBalance, LeaseRequest, Micros};
use super::codec::LendTerms;
use super::cooldown::Cooldown;
use super::script_model::Ledger;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::{LeaseTerms, Limit, ParsedRule, Timestamp};
use tidegate_testbed::Random;

const NODES: usize = 100;
const DURATION: Micros = 5_000_000;
const DEADLINE: Micros = 20_000;
const SWEEP_INTERVAL: Micros = 250_000;
/// How long an idle node takes at most to notice a new primary, and a new rule.
const NOTICE_PRIMARY_MAX: Micros = 500_000;
const NOTICE_RULE_MAX: Micros = 1_000_000;
/// The time over which the requests of a burst arrive.
const ARRIVAL_SPREAD: Micros = 20_000;
const COST_MAX: u64 = 4;

struct Node {
    balance: LeaseBalance,
    /// How fast its clock runs, in parts of 2^20, and what it shows at the beginning.
    speed: u64,
    offset: Micros,
    paused_until: Micros,
    /// The primary that it uses, and its cooldown by its own clock.
    primary: u64,
    cooldown: Cooldown,
    /// The version of the rule that it uses.
    version: u64,
    /// Counts its restarts: replies to an earlier life are dropped.
    life: u64,
    asked: u64,
}

impl Node {
    fn clock(&self, now: Micros) -> Micros {
        let shown = (u128::from(now) * u128::from(self.speed)) >> 20;
        self.offset + Micros::try_from(shown).expect("a run is short")
    }

    fn is_low(&self, clock: Micros) -> bool {
        self.balance.is_low(self.balance.remaining(clock))
    }
}

enum Event {
    /// A request of this cost arrives at a node.
    Arrival(usize, u64),
    /// A request for a lease, or for a decision, reaches Redis.
    Request {
        node: usize,
        life: u64,
        asked: u64,
        request: LeaseRequest,
        /// The cost of the request that caused it.
        cost: u64,
        primary: u64,
        is_direct: bool,
    },
    /// A reply reaches the node.
    Reply {
        node: usize,
        life: u64,
        asked: u64,
        request: LeaseRequest,
        grant: Option<Grant>,
        is_direct: bool,
    },
    /// The deadline of a request for a lease.
    Deadline {
        node: usize,
        life: u64,
        asked: u64,
        request: LeaseRequest,
    },
    Sweep(usize),
    Pause(usize),
    Death(usize),
    Failover,
    /// A node notices the current primary and rule.
    Notice(usize),
    /// The rule changes.
    Change(ParsedRule),
}

struct World {
    random: Random,
    limit: Limit,
    lending: LeaseTerms,
    ledger: Ledger,
    /// The replica: the state of the primary some time ago.
    replica: Ledger,
    primary: u64,
    /// How often the rule has changed.
    version: u64,
    nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    events: Vec<Option<Event>>,
    admitted: Vec<Micros>,
    leased: u64,
    numbers: u64,
}

impl World {
    fn new(seed: u64, rule: &ParsedRule) -> Self {
        let mut random = Random(seed);
        let lending = rule.lease_terms().expect("it can have leases");
        let limit = Limit::with_windows(lending.rule.clone(), |_, _| None).expect("it is in UTC");
        let ledger = Ledger::new(&limit, Timestamp::EPOCH);
        let nodes = (0..NODES)
            .map(|_| Node {
                balance: LeaseBalance::new(0),
                // Half a percent too slow or too fast.
                speed: (1 << 20) - (1 << 13) / 2 + random.below(1 << 13),
                offset: random.below(1_000_000_000),
                paused_until: 0,
                primary: 1,
                cooldown: Cooldown::default(),
                version: 0,
                life: 0,
                asked: 0,
            })
            .collect();
        Self {
            random,
            limit,
            lending,
            replica: ledger.clone(),
            ledger,
            primary: 1,
            version: 0,
            nodes,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            admitted: Vec::new(),
            leased: 0,
            numbers: 0,
        }
    }

    fn at(&mut self, time: Micros, event: Event) {
        self.queue.push(Reverse((time, self.events.len() as u64)));
        self.events.push(Some(event));
    }

    /// Returns a network delay: mostly short, sometimes long, sometimes infinite.
    fn delay(&mut self) -> Option<Micros> {
        match self.random.below(100) {
            0 => None,
            1..=3 => Some(self.random.below(60_000)),
            _ => Some(50 + self.random.below(400)),
        }
    }

    fn send(
        &mut self,
        now: Micros,
        node: usize,
        cost: u64,
        request: LeaseRequest,
        is_direct: bool,
    ) {
        let (life, asked) = {
            let node = &mut self.nodes[node];
            node.asked += 1;
            (node.life, node.asked)
        };
        let primary = self.nodes[node].primary;
        if let Some(delay) = self.delay() {
            let request = request.clone();
            self.at(
                now + delay,
                Event::Request { node, life, asked, request, cost, primary, is_direct },
            );
        }
        if !is_direct {
            self.at(now + DEADLINE, Event::Deadline { node, life, asked, request });
        }
    }

    /// Returns whether the node must not use leases, because its primary is new.
    fn is_cooling_down(&mut self, now: Micros, node: usize) -> bool {
        let node = &mut self.nodes[node];
        let clock = node.clock(now);
        node.cooldown.is_on(node.primary, clock)
    }

    fn arrival(&mut self, now: Micros, index: usize, cost: u64) {
        let clock = self.nodes[index].clock(now);
        let size_max = (self.lending.leased_max / 2).max(1);
        if self.nodes[index].balance.spend(clock, cost) {
            self.admit(now, cost);
            self.leased += cost;
            if self.nodes[index].is_low(clock) && !self.is_cooling_down(now, index) {
                let request = self.nodes[index].balance.request(clock, 1, size_max);
                self.send(now, index, 1, request, false);
            }
        } else if self.is_cooling_down(now, index) {
            let request = LeaseRequest { closed: Vec::new(), size: cost, sent: clock };
            self.send(now, index, cost, request, true);
        } else if !self.nodes[index].balance.is_requested() {
            let request = self.nodes[index].balance.request(clock, cost, size_max);
            self.send(now, index, cost, request, false);
        }
    }

    fn admit(&mut self, now: Micros, cost: u64) {
        self.admitted.extend((0..cost).map(|_| now));
    }

    /// Adopts the current primary and rule: leases of another rule are dropped.
    fn notice(&mut self, now: Micros, index: usize) {
        let (primary, version) = (self.primary, self.version);
        let node = &mut self.nodes[index];
        node.primary = primary;
        if node.version != version {
            (node.balance, node.version) = (LeaseBalance::new(node.clock(now)), version);
            // Replies to earlier requests are dropped.
            node.asked += 1;
        }
    }

    /// Every node notices the change, each at its own time.
    fn notify_all(&mut self, now: Micros, within: Micros) {
        for index in 0..NODES {
            let later = now + self.random.below(within);
            self.at(later, Event::Notice(index));
        }
    }

    fn handle(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrival(node, _)
            | Event::Notice(node)
            | Event::Sweep(node)
            | Event::Reply { node, .. }
            | Event::Deadline { node, .. }
                if now < self.nodes[node].paused_until =>
            {
                let later = self.nodes[node].paused_until;
                self.at(later, event);
            }
            Event::Arrival(node, cost) => self.arrival(now, node, cost),
            Event::Request { node, life, asked, request, cost, primary, is_direct } => {
                // A connection to a former primary is broken, and the request is lost. A request under a former rule is
                // rejected. In both cases the node notices.
                if primary != self.primary || self.nodes[node].version != self.version {
                    let later = now + self.random.below(NOTICE_PRIMARY_MAX / 10);
                    self.at(later, Event::Notice(node));
                    return;
                }
                let grant = self.serve(now, cost, &request, is_direct);
                if is_direct {
                    // Admitted when Redis decided, even if the reply is lost.
                    self.admit(now, grant.as_ref().map_or(0, |grant| grant.amount));
                }
                if let Some(delay) = self.delay() {
                    self.at(
                        now + delay,
                        Event::Reply { node, life, asked, request, grant, is_direct },
                    );
                }
            }
            Event::Reply { node, life, asked, request, grant, is_direct } => {
                if self.nodes[node].life != life {
                    return;
                }
                if !is_direct
                    && self.nodes[node].asked == asked
                    && self.nodes[node].balance.is_requested()
                {
                    let grant = grant.filter(|_| !self.is_cooling_down(now, node));
                    self.nodes[node].balance.receive(&request, grant);
                }
            }
            Event::Deadline { node, life, asked, request } => {
                let node = &mut self.nodes[node];
                if node.life == life && node.asked == asked && node.balance.is_requested() {
                    node.balance.receive(&request, None);
                    // A late reply is dropped.
                    node.asked += 1;
                }
            }
            Event::Sweep(index) => self.sweep(now, index),
            Event::Pause(node) => {
                self.nodes[node].paused_until = now + self.random.below(2_000_000);
            }
            Event::Death(index) => self.die(now, index),
            Event::Failover => {
                self.ledger = self.replica.clone();
                self.primary += 1;
                self.notify_all(now, NOTICE_PRIMARY_MAX);
            }
            Event::Notice(node) => self.notice(now, node),
            Event::Change(rule) => self.change(now, &rule),
        }
    }

    fn sweep(&mut self, now: Micros, index: usize) {
        let node = &mut self.nodes[index];
        let clock = node.clock(now);
        let is_idle = clock.saturating_sub(node.balance.last_spent()) >= SWEEP_INTERVAL;
        if is_idle
            && !node.balance.is_requested()
            && let Some(request) = node.balance.return_all(clock)
        {
            self.send(now, index, 0, request, false);
        }
        self.at(now + SWEEP_INTERVAL, Event::Sweep(index));
    }

    /// The node is replaced by a new one.
    fn die(&mut self, now: Micros, index: usize) {
        let node = &mut self.nodes[index];
        node.balance = LeaseBalance::new(node.clock(now));
        (node.life, node.cooldown) = (node.life + 1, Cooldown::default());
        self.notice(now, index);
    }

    /// Changes the rule: charges and leases keep counting, on the replica too.
    fn change(&mut self, now: Micros, rule: &ParsedRule) {
        self.lending = rule.lease_terms().expect("it can have leases");
        let windows = self.lending.rule.clone();
        let limit = Limit::with_windows(windows, |_, _| None).expect("it is in UTC");
        let at = Timestamp::from_micros(now);
        for ledger in [&mut self.ledger, &mut self.replica] {
            ledger.state = limit.take_over(&self.limit, &ledger.state, at);
        }
        self.limit = limit;
        self.version += 1;
        self.notify_all(now, NOTICE_RULE_MAX);
    }

    fn serve(
        &mut self,
        now: Micros,
        cost: u64,
        request: &LeaseRequest,
        is_direct: bool,
    ) -> Option<Grant> {
        if is_direct {
            let at = Timestamp::from_micros(now);
            let passes = !self.limit.decide(&mut self.ledger.state, at, cost).is_deny();
            return passes.then_some(Grant { number: 0, amount: cost, lasts: 0 });
        }
        self.numbers += 1;
        let terms = LendTerms { number: self.numbers, at_least: request.size.min(cost) };
        self.ledger.lend(&self.limit, &self.lending, now, &terms, request)
    }

    /// Returns the pause between bursts of requests; in half of the runs requests arrive at any time instead. Only after a pause
    /// do both the nodes, with their leases, and Redis, which has refilled, have everything to give.
    fn pause_between_bursts(&mut self) -> Option<Micros> {
        (self.random.below(2) == 0).then(|| 100_000 + self.random.below(200_000))
    }

    fn arrives(&mut self, lull: Option<Micros>) -> Micros {
        let any = self.random.below(DURATION);
        lull.map_or(any, |lull| any / lull * lull + self.random.below(ARRIVAL_SPREAD))
    }

    /// Runs to the end. Returns how many failovers there were.
    fn run(&mut self, demand: u64, change: Option<(Micros, ParsedRule)>) -> u64 {
        if let Some((time, rule)) = change {
            self.at(time, Event::Change(rule));
        }
        for index in 0..NODES {
            let sweep = self.random.below(SWEEP_INTERVAL);
            self.at(sweep, Event::Sweep(index));
        }
        let count = demand * DURATION / 1_000_000;
        let lull = self.pause_between_bursts();
        for _ in 0..count {
            let (time, node) = (self.arrives(lull), self.random.below(NODES as u64));
            // Some nodes get far more requests than others.
            let node = if self.random.below(2) == 0 { node } else { node % 5 };
            // Most requests cost one.
            let cost = if self.random.below(4) == 0 { 1 + self.random.below(COST_MAX) } else { 1 };
            self.at(time, Event::Arrival(usize::try_from(node).expect("it is small"), cost));
        }
        let failovers = self.random.below(3);
        for _ in 0..failovers {
            let time = self.random.below(DURATION);
            self.at(time, Event::Failover);
        }
        for _ in 0..10 {
            let (pauses, dies) = (self.random.below(DURATION), self.random.below(DURATION));
            let nodes = [self.random.below(NODES as u64), self.random.below(NODES as u64)];
            let [a, b] = nodes.map(|node| usize::try_from(node).expect("it is small"));
            self.at(pauses, Event::Pause(a));
            self.at(dies, Event::Death(b));
        }
        let mut copied = 0;
        while let Some(Reverse((now, number))) = self.queue.pop() {
            if now > DURATION {
                break;
            }
            // The replica lags by up to 30 ms.
            if now >= copied {
                self.replica = self.ledger.clone();
                copied = now + self.random.below(30_000);
            }
            let event = self.events[usize::try_from(number).expect("it fits")].take();
            self.handle(now, event.expect("it happens once"));
        }
        failovers
    }
}

/// Returns the first admission that a limit with this many bursts would not have admitted.
fn first_beyond(rule: &ParsedRule, bursts: u64, admitted: &mut [Micros]) -> Option<Micros> {
    admitted.sort_unstable();
    let limit = Limit::with_windows(widened(rule, bursts), |_, _| None).expect("it is in UTC");
    let mut state = limit.fresh(Timestamp::EPOCH);
    admitted
        .iter()
        .copied()
        .find(|at| limit.decide(&mut state, Timestamp::from_micros(*at), 1).is_deny())
}

fn widened(rule: &ParsedRule, bursts: u64) -> ParsedRule {
    let text = rule.to_string();
    let wide = if let Some((rate, burst)) = text.split_once(" burst ") {
        let burst: u64 = burst.parse().expect("it is a number");
        format!("{rate} burst {}", burst * bursts)
    } else {
        let (count, rest) = text.split_once('/').expect("it is a rate");
        let count: u64 = count.parse().expect("it is a number");
        format!("{}/{rest}", count * bursts)
    };
    wide.parse().expect("a rule with a larger burst is valid")
}

fn seeds() -> u64 {
    let text = std::env::var("TIDEGATE_SEEDS").unwrap_or_else(|_| "200".to_owned());
    text.parse().expect("TIDEGATE_SEEDS is a number")
}

fn run_seeds(text: &str, demand: u64) -> (u64, u64) {
    let rule: ParsedRule = text.parse().expect("it is a rule");
    let (mut admitted, mut leased) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed, &rule);
        let failovers = world.run(demand, None);
        let beyond = first_beyond(&rule, 1 + failovers, &mut world.admitted);
        assert_eq!(
            beyond, None,
            "`{text}`, seed {seed}: one admission too many, after {failovers} failovers"
        );
        admitted += world.admitted.len() as u64;
        leased += world.leased;
    }
    (admitted, leased)
}

#[test]
fn a_bucket_with_leases_never_admits_one_too_many() {
    let (admitted, leased) = run_seeds("1000/s burst 200", 3_000);
    let whole = seeds() * 1_000 * DURATION / 1_000_000;
    println!("{admitted} admitted of {whole}, {leased} by leases");
    // No leases are used in the first second and after a failover.
    assert!(leased * 3 > admitted, "many were decided by leases");
    assert!(admitted * 3 > whole, "{admitted} of {whole} is too little");
}

#[test]
fn a_window_with_leases_never_admits_one_too_many() {
    let (admitted, leased) = run_seeds("500/s fixed", 3_000);
    println!("{admitted} admitted, {leased} by leases");
    assert!(leased * 3 > admitted, "many were decided by leases");
}

/// Leases of the old rule are spent until their nodes notice the new one, or until they end.
#[test]
fn a_second_after_a_change_only_the_new_rule_admits() {
    let lasts = Micros::try_from(LEASE_TIME.as_micros()).expect("it is a second");
    for (old, new) in [
        ("1000/s burst 200", "300/s burst 60"),
        ("300/s burst 60", "1000/s burst 200"),
        ("500/s fixed", "100/s fixed"),
    ] {
        let rules = [old, new].map(|text| text.parse::<ParsedRule>().expect("it is a rule"));
        let mut spent_after = 0;
        for seed in 0..seeds() / 4 {
            let mut world = World::new(seed, &rules[0]);
            let changes = 1_500_000 + world.random.below(1_000_000);
            let failovers = world.run(3_000, Some((changes, rules[1].clone())));
            let mut parts = [Vec::new(), Vec::new()];
            for at in &world.admitted {
                if *at < changes {
                    parts[0].push(*at);
                } else if *at >= changes + lasts {
                    parts[1].push(*at);
                }
            }
            for (rule, part) in rules.iter().zip(&mut parts) {
                let beyond = first_beyond(rule, 1 + failovers, part);
                assert_eq!(beyond, None, "`{old}` to `{new}`, seed {seed}: one admission too many");
            }
            spent_after += parts[1].len();
        }
        assert!(spent_after > 0, "`{new}` admits requests");
    }
}

#[test]
fn the_simulation_detects_a_lender_that_reserves_nothing_for_leases() {
    let rule: ParsedRule = "1000/s burst 200".parse().expect("it is a rule");
    let found = (0..seeds()).any(|seed| {
        let mut world = World::new(seed, &rule);
        // As if leases needed no reserve: Redis keeps the whole burst.
        world.limit = Limit::with_windows(rule.clone(), |_, _| None).expect("it is in UTC");
        let failovers = world.run(3_000, None);
        failovers == 0 && first_beyond(&rule, 1, &mut world.admitted).is_some()
    });
    assert!(found, "the error is detected");
}
