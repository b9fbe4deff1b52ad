//! A hundred nodes and a Redis that fails, in a time of their own: the same seed, the same story.
//!
//! Clocks run at different speeds, messages are late or lost, nodes stand still and go on with what they had, or die, and
//! replicas that have not heard the last of it take over, of which each node hears in its own time. Requests cost one or a
//! few, and in some stories the rule changes. What is checked is what is promised: never one admission beyond the bound.
//! Clocks do not stop: what then is in `docs/decisions/0020-leases.md`.
//!
//! `TIDEGATE_SEEDS` says how many stories are told: 200 in the test command, 10 000 in `cargo xtask leases`.

use super::LASTS;
use super::balance::{Grant, Micros, Purse, Request};
use super::codec::Terms;
use super::cooldown::Quiet;
use super::script_model::Ledger;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::{LeaseTerms, Limit, ParsedRule, Timestamp};
use tidegate_testbed::Random;

const NODES: usize = 100;
const STORY: Micros = 5_000_000;
const DEADLINE: Micros = 20_000;
const SWEEP: Micros = 250_000;
/// Who does not ask meets another primary, and hears of another rule, so much later at the most.
const MEETS: Micros = 500_000;
const HEARS: Micros = 1_000_000;
/// So long does it take a crowd to arrive.
const CROWD: Micros = 20_000;
const COST_MAX: u64 = 4;

struct Node {
    purse: Purse,
    /// How fast its clock runs, in parts of 2^20, and what it shows at the beginning.
    speed: u64,
    offset: Micros,
    paused_until: Micros,
    /// Which primary it has met, and from when on it takes leases, by its own clock.
    met: u64,
    quiet: Quiet,
    /// Which version of the rule it goes by.
    version: u64,
    /// Counts its lives: what was on its way to another is for nobody.
    life: u64,
    asked: u64,
}

impl Node {
    fn clock(&self, now: Micros) -> Micros {
        let shown = (u128::from(now) * u128::from(self.speed)) >> 20;
        self.offset + Micros::try_from(shown).expect("a story is short")
    }

    fn is_low(&self, clock: Micros) -> bool {
        self.purse.is_low(self.purse.left(clock))
    }
}

enum Event {
    /// Somebody wants to pass, at this cost.
    Arrival(usize, u64),
    /// A question reaches Redis.
    Question {
        node: usize,
        life: u64,
        asked: u64,
        request: Request,
        /// What it costs who asks.
        cost: u64,
        primary: u64,
        is_direct: bool,
    },
    /// An answer comes back.
    Answer {
        node: usize,
        life: u64,
        asked: u64,
        request: Request,
        grant: Option<Grant>,
        is_direct: bool,
    },
    /// Nobody waits any longer.
    Deadline {
        node: usize,
        life: u64,
        asked: u64,
        request: Request,
    },
    Sweep(usize),
    Pause(usize),
    Death(usize),
    Failover,
    /// A node hears who the primary is, and what the rule.
    Hear(usize),
    /// Another rule holds.
    Change(ParsedRule),
}

struct World {
    random: Random,
    limit: Limit,
    lending: LeaseTerms,
    ledger: Ledger,
    /// What the replica knows: the primary, some time ago.
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
        let lending = rule.lease_terms().expect("it can be lent");
        let limit = Limit::with_windows(lending.rule.clone(), |_, _| None).expect("it is in UTC");
        let ledger = Ledger::new(&limit, Timestamp::EPOCH);
        let nodes = (0..NODES)
            .map(|_| Node {
                purse: Purse::new(0),
                // Half a percent too slow or too fast.
                speed: (1 << 20) - (1 << 13) / 2 + random.below(1 << 13),
                offset: random.below(1_000_000_000),
                paused_until: 0,
                met: 1,
                quiet: Quiet::default(),
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

    /// Mostly quick, at times slow, at times never.
    fn delay(&mut self) -> Option<Micros> {
        match self.random.below(100) {
            0 => None,
            1..=3 => Some(self.random.below(60_000)),
            _ => Some(50 + self.random.below(400)),
        }
    }

    fn send(&mut self, now: Micros, node: usize, cost: u64, request: Request, is_direct: bool) {
        let (life, asked) = {
            let node = &mut self.nodes[node];
            node.asked += 1;
            (node.life, node.asked)
        };
        let primary = self.nodes[node].met;
        if let Some(delay) = self.delay() {
            let request = request.clone();
            self.at(
                now + delay,
                Event::Question { node, life, asked, request, cost, primary, is_direct },
            );
        }
        if !is_direct {
            self.at(now + DEADLINE, Event::Deadline { node, life, asked, request });
        }
    }

    /// Whether it must not take leases: it has just met the primary that it knows of.
    fn is_quiet(&mut self, now: Micros, node: usize) -> bool {
        let node = &mut self.nodes[node];
        let clock = node.clock(now);
        node.quiet.is_on(node.met, clock)
    }

    fn arrival(&mut self, now: Micros, place: usize, cost: u64) {
        let clock = self.nodes[place].clock(now);
        let most = (self.lending.leased_max / 2).max(1);
        if self.nodes[place].purse.spend(clock, cost) {
            self.admit(now, cost);
            self.leased += cost;
            if self.nodes[place].is_low(clock) && !self.is_quiet(now, place) {
                let request = self.nodes[place].purse.ask(clock, 1, most);
                self.send(now, place, 1, request, false);
            }
        } else if self.is_quiet(now, place) {
            let request = Request { closed: Vec::new(), size: cost, sent: clock };
            self.send(now, place, cost, request, true);
        } else if !self.nodes[place].purse.is_asking() {
            let request = self.nodes[place].purse.ask(clock, cost, most);
            self.send(now, place, cost, request, false);
        }
    }

    fn admit(&mut self, now: Micros, cost: u64) {
        self.admitted.extend((0..cost).map(|_| now));
    }

    /// What it hears when it is told, or asks: another primary is waited out, leases of another rule are not spent.
    fn hear(&mut self, now: Micros, place: usize) {
        let (primary, version) = (self.primary, self.version);
        let node = &mut self.nodes[place];
        node.met = primary;
        if node.version != version {
            (node.purse, node.version) = (Purse::new(node.clock(now)), version);
            // An answer to what was asked before is for nobody.
            node.asked += 1;
        }
    }

    /// Everybody hears of it, each in its own time.
    fn spread(&mut self, now: Micros, within: Micros) {
        for place in 0..NODES {
            let later = now + self.random.below(within);
            self.at(later, Event::Hear(place));
        }
    }

    fn happen(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrival(node, _)
            | Event::Hear(node)
            | Event::Sweep(node)
            | Event::Answer { node, .. }
            | Event::Deadline { node, .. }
                if now < self.nodes[node].paused_until =>
            {
                let later = self.nodes[node].paused_until;
                self.at(later, event);
            }
            Event::Arrival(node, cost) => self.arrival(now, node, cost),
            Event::Question { node, life, asked, request, cost, primary, is_direct } => {
                // A connection to who is no primary any more is gone, and the question with it. Who notices finds another.
                // And who asks by another rule is told so first.
                if primary != self.primary || self.nodes[node].version != self.version {
                    let later = now + self.random.below(MEETS / 10);
                    self.at(later, Event::Hear(node));
                    return;
                }
                let grant = self.serve(now, cost, &request, is_direct);
                if is_direct {
                    // As of when Redis decided, whose clock it is; and also if nobody hears of it.
                    self.admit(now, grant.as_ref().map_or(0, |grant| grant.amount));
                }
                if let Some(delay) = self.delay() {
                    self.at(
                        now + delay,
                        Event::Answer { node, life, asked, request, grant, is_direct },
                    );
                }
            }
            Event::Answer { node, life, asked, request, grant, is_direct } => {
                if self.nodes[node].life != life {
                    return;
                }
                if !is_direct
                    && self.nodes[node].asked == asked
                    && self.nodes[node].purse.is_asking()
                {
                    let grant = grant.filter(|_| !self.is_quiet(now, node));
                    self.nodes[node].purse.answered(&request, grant);
                }
            }
            Event::Deadline { node, life, asked, request } => {
                let node = &mut self.nodes[node];
                if node.life == life && node.asked == asked && node.purse.is_asking() {
                    node.purse.answered(&request, None);
                    // An answer that comes after all is for nobody.
                    node.asked += 1;
                }
            }
            Event::Sweep(place) => self.sweep(now, place),
            Event::Pause(node) => {
                self.nodes[node].paused_until = now + self.random.below(2_000_000);
            }
            Event::Death(place) => self.die(now, place),
            Event::Failover => {
                self.ledger = self.replica.clone();
                self.primary += 1;
                self.spread(now, MEETS);
            }
            Event::Hear(node) => self.hear(now, node),
            Event::Change(rule) => self.change(now, &rule),
        }
    }

    fn sweep(&mut self, now: Micros, place: usize) {
        let node = &mut self.nodes[place];
        let clock = node.clock(now);
        let is_idle = clock.saturating_sub(node.purse.spent_last()) >= SWEEP;
        if is_idle
            && !node.purse.is_asking()
            && let Some(request) = node.purse.give_back(clock)
        {
            self.send(now, place, 0, request, false);
        }
        self.at(now + SWEEP, Event::Sweep(place));
    }

    /// Another one takes its place, and meets the primary.
    fn die(&mut self, now: Micros, place: usize) {
        let node = &mut self.nodes[place];
        node.purse = Purse::new(node.clock(now));
        (node.life, node.quiet) = (node.life + 1, Quiet::default());
        self.hear(now, place);
    }

    /// What was charged is charged on, and what was lent is counted on until it ends; on the replica too.
    fn change(&mut self, now: Micros, rule: &ParsedRule) {
        self.lending = rule.lease_terms().expect("it can be lent");
        let windows = self.lending.rule.clone();
        let limit = Limit::with_windows(windows, |_, _| None).expect("it is in UTC");
        let at = Timestamp::from_micros(now);
        for ledger in [&mut self.ledger, &mut self.replica] {
            ledger.state = limit.take_over(&self.limit, &ledger.state, at);
        }
        self.limit = limit;
        self.version += 1;
        self.spread(now, HEARS);
    }

    fn serve(
        &mut self,
        now: Micros,
        cost: u64,
        request: &Request,
        is_direct: bool,
    ) -> Option<Grant> {
        if is_direct {
            let at = Timestamp::from_micros(now);
            let passes = !self.limit.decide(&mut self.ledger.state, at, cost).is_deny();
            return passes.then_some(Grant { number: 0, amount: cost, lasts: 0 });
        }
        self.numbers += 1;
        let terms = Terms { number: self.numbers, at_least: request.size.min(cost) };
        self.ledger.lend(&self.limit, &self.lending, now, &terms, request)
    }

    /// In half of the stories requests come at any time; in the others in crowds, so long apart that what was lent lies
    /// with the nodes while Redis recovers. Only then is it too much that both give all they have.
    fn lull(&mut self) -> Option<Micros> {
        (self.random.below(2) == 0).then(|| 100_000 + self.random.below(200_000))
    }

    fn arrives(&mut self, lull: Option<Micros>) -> Micros {
        let any = self.random.below(STORY);
        lull.map_or(any, |lull| any / lull * lull + self.random.below(CROWD))
    }

    /// Tells the story to its end; how many failovers there were.
    fn tell(&mut self, demand: u64, change: Option<(Micros, ParsedRule)>) -> u64 {
        if let Some((time, rule)) = change {
            self.at(time, Event::Change(rule));
        }
        for place in 0..NODES {
            let sweep = self.random.below(SWEEP);
            self.at(sweep, Event::Sweep(place));
        }
        let count = demand * STORY / 1_000_000;
        let lull = self.lull();
        for _ in 0..count {
            let (time, node) = (self.arrives(lull), self.random.below(NODES as u64));
            // Some nodes are asked far more than others.
            let node = if self.random.below(2) == 0 { node } else { node % 5 };
            // Most cost one.
            let cost = if self.random.below(4) == 0 { 1 + self.random.below(COST_MAX) } else { 1 };
            self.at(time, Event::Arrival(usize::try_from(node).expect("it is small"), cost));
        }
        let failovers = self.random.below(3);
        for _ in 0..failovers {
            let time = self.random.below(STORY);
            self.at(time, Event::Failover);
        }
        for _ in 0..10 {
            let (pauses, dies) = (self.random.below(STORY), self.random.below(STORY));
            let nodes = [self.random.below(NODES as u64), self.random.below(NODES as u64)];
            let [a, b] = nodes.map(|node| usize::try_from(node).expect("it is small"));
            self.at(pauses, Event::Pause(a));
            self.at(dies, Event::Death(b));
        }
        let mut copied = 0;
        while let Some(Reverse((now, number))) = self.queue.pop() {
            if now > STORY {
                break;
            }
            // The replica hears of it up to a few milliseconds later.
            if now >= copied {
                self.replica = self.ledger.clone();
                copied = now + self.random.below(30_000);
            }
            let event = self.events[usize::try_from(number).expect("it fits")].take();
            self.happen(now, event.expect("it happens once"));
        }
        failovers
    }
}

/// The first admission that a limit with as many bursts would not have admitted.
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
    wide.parse().expect("a rule with more room is a rule")
}

fn seeds() -> u64 {
    let text = std::env::var("TIDEGATE_SEEDS").unwrap_or_else(|_| "200".to_owned());
    text.parse().expect("TIDEGATE_SEEDS is a number")
}

fn stories(text: &str, demand: u64) -> (u64, u64) {
    let rule: ParsedRule = text.parse().expect("it is a rule");
    let (mut admitted, mut leased) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed, &rule);
        let failovers = world.tell(demand, None);
        let beyond = first_beyond(&rule, 1 + failovers, &mut world.admitted);
        assert_eq!(
            beyond, None,
            "`{text}`, seed {seed}: one too many, after {failovers} failovers"
        );
        admitted += world.admitted.len() as u64;
        leased += world.leased;
    }
    (admitted, leased)
}

#[test]
fn a_bucket_that_is_lent_out_never_admits_one_too_many() {
    let (admitted, leased) = stories("1000/s burst 200", 3_000);
    let whole = seeds() * 1_000 * STORY / 1_000_000;
    println!("{admitted} admitted of {whole}, {leased} by leases");
    // Nobody takes leases for the first second, and after a failover.
    assert!(leased * 3 > admitted, "many were decided here");
    assert!(admitted * 3 > whole, "{admitted} of {whole} is too little");
}

#[test]
fn a_window_that_is_lent_out_never_admits_one_too_many() {
    let (admitted, leased) = stories("500/s fixed", 3_000);
    println!("{admitted} admitted, {leased} by leases");
    assert!(leased * 3 > admitted, "many were decided here");
}

/// What was lent under the old rule is spent until those who have it hear of the new one, or it runs out.
#[test]
fn a_second_after_a_change_of_rule_nothing_but_the_new_one_is_gone_by() {
    let lasts = Micros::try_from(LASTS.as_micros()).expect("it is a second");
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
            let failovers = world.tell(3_000, Some((changes, rules[1].clone())));
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
                assert_eq!(beyond, None, "`{old}` to `{new}`, seed {seed}: one too many");
            }
            spent_after += parts[1].len();
        }
        assert!(spent_after > 0, "`{new}` admits somebody");
    }
}

#[test]
fn a_lender_that_keeps_nothing_back_is_found_out() {
    let rule: ParsedRule = "1000/s burst 200".parse().expect("it is a rule");
    let found = (0..seeds()).any(|seed| {
        let mut world = World::new(seed, &rule);
        // As if what is lent needed no room: the whole burst stays with the lender.
        world.limit = Limit::with_windows(rule.clone(), |_, _| None).expect("it is in UTC");
        let failovers = world.tell(3_000, None);
        failovers == 0 && first_beyond(&rule, 1, &mut world.admitted).is_some()
    });
    assert!(found, "the check sees what it is there for");
}
