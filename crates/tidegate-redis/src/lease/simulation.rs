//! A hundred nodes and a Redis that fails, in a time of their own: the same seed, the same story.
//!
//! Clocks run at different speeds and stop, messages are late or lost, nodes pause and die, and replicas that have not
//! heard the last of it take over. What is checked is what is promised: never one admission beyond the bound.
//!
//! `TIDEGATE_SEEDS` says how many stories are told: 200 in the test command, 10 000 in `cargo xtask leases`.

use super::LASTS;
use super::purse::{Grant, Micros, Purse, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::{Lending, Limit, Rule, Span, State, Timestamp};
use tidegate_testbed::Random;

const NODES: usize = 100;
const STORY: Micros = 4_000_000;
const DEADLINE: Micros = 20_000;
const SWEEP: Micros = 250_000;

/// Redis, as `lend.lua` has it.
#[derive(Clone)]
struct Ledger {
    state: State,
    leases: Vec<(u64, u64, Micros)>,
}

impl Ledger {
    fn lend(
        &mut self,
        limit: &Limit,
        lending: &Lending,
        now: Micros,
        asked: &Request,
    ) -> Option<(u64, Micros)> {
        let at = Timestamp::from_micros(now);
        self.leases.retain(|(_, _, ends)| *ends > now);
        for closed in &asked.closed {
            let known = self.leases.iter().position(|(number, ..)| *number == closed.number);
            if let Some(place) = known {
                self.leases.swap_remove(place);
                limit.refund(&mut self.state, at, closed.unused);
            }
        }
        let lent: u64 = self.leases.iter().map(|(_, amount, _)| amount).sum();
        let mut size = asked.size;
        while size > 0 {
            let is_spare = lent + size <= lending.most;
            let leaves_as_much = !limit.peek(&self.state, at, size * 2).is_deny();
            if is_spare
                && (size == 1 || leaves_as_much)
                && !limit.decide(&mut self.state, at, size).is_deny()
            {
                let lasts = Span::from(LASTS).as_micros();
                let window =
                    limit.window(&self.state, at).map(|window| window.end.since(at).as_micros());
                return Some((size, window.map_or(lasts, |left| left.min(lasts))));
            }
            size /= 2;
        }
        None
    }
}

struct Node {
    purse: Purse,
    /// How fast its clock runs, in parts of 2^20, and what it shows at the beginning.
    speed: u64,
    offset: Micros,
    paused_until: Micros,
    /// Which primary it has met, and from when on it takes leases, by its own clock.
    met: u64,
    quiet_until: Micros,
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
    /// Somebody wants to pass.
    Arrival(usize),
    /// A question reaches Redis.
    Question {
        node: usize,
        life: u64,
        asked: u64,
        request: Request,
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
}

struct World {
    random: Random,
    limit: Limit,
    lending: Lending,
    ledger: Ledger,
    /// What the replica knows: the primary, some time ago.
    replica: Ledger,
    primary: u64,
    nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    events: Vec<Option<Event>>,
    admitted: Vec<Micros>,
    leased: u64,
    numbers: u64,
}

impl World {
    fn new(seed: u64, rule: &Rule) -> Self {
        let mut random = Random(seed);
        let lending = rule.lend().expect("it can be lent");
        let limit = Limit::with_windows(lending.rule.clone(), |_, _| None).expect("it is in UTC");
        let state = limit.fresh(Timestamp::EPOCH);
        let ledger = Ledger { state, leases: Vec::new() };
        let nodes = (0..NODES)
            .map(|_| Node {
                purse: Purse::new(0),
                // Half a percent too slow or too fast.
                speed: (1 << 20) - (1 << 13) / 2 + random.below(1 << 13),
                offset: random.below(1_000_000_000),
                paused_until: 0,
                met: 0,
                quiet_until: 0,
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

    fn send(&mut self, now: Micros, node: usize, request: Request, is_direct: bool) {
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
                Event::Question { node, life, asked, request, primary, is_direct },
            );
        }
        if !is_direct {
            self.at(now + DEADLINE, Event::Deadline { node, life, asked, request });
        }
    }

    /// Whether it must not take leases: it has just met this primary.
    fn is_quiet(&mut self, now: Micros, node: usize) -> bool {
        let primary = self.primary;
        let node = &mut self.nodes[node];
        let clock = node.clock(now);
        if node.met != primary {
            node.met = primary;
            let lasts = Span::from(LASTS).as_micros();
            node.quiet_until = clock + lasts + lasts / 8;
        }
        clock < node.quiet_until
    }

    fn arrival(&mut self, now: Micros, place: usize) {
        let clock = self.nodes[place].clock(now);
        if self.nodes[place].purse.spend(clock, 1) {
            self.admitted.push(now);
            self.leased += 1;
            if self.nodes[place].is_low(clock) && !self.is_quiet(now, place) {
                let most = self.lending.most / 2;
                let request = self.nodes[place].purse.ask(clock, 1, most.max(1));
                self.send(now, place, request, false);
            }
        } else if self.is_quiet(now, place) {
            let request = Request { closed: Vec::new(), size: 1, sent: clock };
            self.send(now, place, request, true);
        } else if !self.nodes[place].purse.is_asking() {
            let most = self.lending.most / 2;
            let request = self.nodes[place].purse.ask(clock, 1, most.max(1));
            self.send(now, place, request, false);
        }
    }

    fn happen(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrival(node)
            | Event::Sweep(node)
            | Event::Answer { node, .. }
            | Event::Deadline { node, .. }
                if now < self.nodes[node].paused_until =>
            {
                let later = self.nodes[node].paused_until;
                self.at(later, event);
            }
            Event::Arrival(node) => self.arrival(now, node),
            Event::Question { node, life, asked, request, primary, is_direct } => {
                // A connection to who is no primary any more is gone.
                if primary != self.primary {
                    return;
                }
                let grant = self.serve(now, &request, is_direct);
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
                if is_direct {
                    self.admitted.extend(grant.map(|_| now));
                } else if self.nodes[node].asked == asked && self.nodes[node].purse.is_asking() {
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
            Event::Sweep(place) => {
                let node = &mut self.nodes[place];
                let clock = node.clock(now);
                let is_idle = clock.saturating_sub(node.purse.spent_last()) >= SWEEP;
                if is_idle
                    && !node.purse.is_asking()
                    && let Some(request) = node.purse.give_back(clock)
                {
                    self.send(now, place, request, false);
                }
                self.at(now + SWEEP, Event::Sweep(place));
            }
            Event::Pause(node) => {
                self.nodes[node].paused_until = now + self.random.below(2_000_000);
            }
            Event::Death(node) => {
                let clock = self.nodes[node].clock(now);
                let node = &mut self.nodes[node];
                (node.purse, node.met, node.life) = (Purse::new(clock), 0, node.life + 1);
            }
            Event::Failover => {
                self.ledger = self.replica.clone();
                self.primary += 1;
            }
        }
    }

    fn serve(&mut self, now: Micros, request: &Request, is_direct: bool) -> Option<Grant> {
        if is_direct {
            let at = Timestamp::from_micros(now);
            let passes = !self.limit.decide(&mut self.ledger.state, at, 1).is_deny();
            return passes.then_some(Grant { number: 0, amount: 1, lasts: 0 });
        }
        let (amount, lasts) = self.ledger.lend(&self.limit, &self.lending, now, request)?;
        self.numbers += 1;
        self.ledger.leases.push((self.numbers, amount, now + lasts));
        Some(Grant { number: self.numbers, amount, lasts })
    }

    /// Tells the story to its end; how many failovers there were.
    fn tell(&mut self, demand: u64) -> u64 {
        for place in 0..NODES {
            let sweep = self.random.below(SWEEP);
            self.at(sweep, Event::Sweep(place));
        }
        let count = demand * STORY / 1_000_000;
        for _ in 0..count {
            let (time, node) = (self.random.below(STORY), self.random.below(NODES as u64));
            // Some nodes are asked far more than others.
            let node = if self.random.below(2) == 0 { node } else { node % 5 };
            self.at(time, Event::Arrival(usize::try_from(node).expect("it is small")));
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
fn first_beyond(rule: &Rule, bursts: u64, admitted: &mut [Micros]) -> Option<Micros> {
    admitted.sort_unstable();
    let limit = Limit::with_windows(widened(rule, bursts), |_, _| None).expect("it is in UTC");
    let mut state = limit.fresh(Timestamp::EPOCH);
    admitted
        .iter()
        .copied()
        .find(|at| limit.decide(&mut state, Timestamp::from_micros(*at), 1).is_deny())
}

fn widened(rule: &Rule, bursts: u64) -> Rule {
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
    let rule: Rule = text.parse().expect("it is a rule");
    let (mut admitted, mut leased) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed, &rule);
        let failovers = world.tell(demand);
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

#[test]
fn a_lender_that_keeps_nothing_back_is_found_out() {
    let rule: Rule = "1000/s burst 200".parse().expect("it is a rule");
    let found = (0..seeds()).any(|seed| {
        let mut world = World::new(seed, &rule);
        // As if what is lent needed no room: the whole burst stays with the lender.
        world.limit = Limit::with_windows(rule.clone(), |_, _| None).expect("it is in UTC");
        let failovers = world.tell(3_000);
        failovers == 0 && first_beyond(&rule, 1, &mut world.admitted).is_some()
    });
    assert!(found, "the check sees what it is there for");
}
