//! A simulated service behind an adaptive gate: its capacity changes in steps, it has more callers than it can serve,
//! and its clock is manual (T14).
//!
//! A worker serves one request at a time; a request that finds no free worker waits in an unbounded queue. With fewer
//! workers, throughput falls and a request without a wait is as fast as before: the limit has to fall. With slower
//! workers, throughput falls and all of them are needed: the limit has to stay.
//!
//! Always   A seed and a gate give the same results on every machine: the simulation uses integers and no real time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use tidegate::load::{Adaptive, AdaptiveGate, AdaptivePermit};
use tidegate::{Clock, ManualClock, Span, Timestamp};
use tidegate_testbed::Random;

/// How long a request takes a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Evenly distributed from half of the mean to one and a half times the mean.
    Even,
    /// Geometric: k times half of the mean with probability 2^-k. One request in a hundred takes 3.5 times the mean.
    Wild,
}

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The distribution of the work of a request.
    pub work: Work,
    /// The capacities over time; the first one starts at zero.
    pub steps: Vec<Step>,
    /// Requests per second.
    pub offered: u64,
    /// The end of the simulation.
    pub end: Span,
    /// The length of a slice of the record.
    pub slice: Span,
}

/// The capacity of the service from some time on.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The time from which it holds.
    pub from: Span,
    /// The number of requests that are served at a time.
    pub workers: u64,
    /// The average time of a request that does not wait.
    pub base: Span,
}

impl Step {
    /// Returns the requests that can be served per second.
    pub fn capacity(&self) -> u64 {
        self.workers * 1_000_000 / self.base.as_micros()
    }
}

impl Trial {
    /// Returns T14: a capacity of 1000 requests per second, then 200, then 1000 again, each for `phase`, because the
    /// number of workers changes. 2000 requests per second arrive all the time: twice the capacity, and ten times the
    /// capacity in the middle.
    pub fn fewer(base: Span, phase: Span) -> Self {
        let workers = |capacity: u64| (capacity * base.as_micros() / 1_000_000).max(1);
        Self::of(phase, [(workers(1_000), base), (workers(200), base), (workers(1_000), base)])
    }

    /// Returns the same capacities, because the workers become five times slower.
    pub fn slower(base: Span, phase: Span) -> Self {
        let workers = (base.as_micros() / 1_000).max(1);
        let slow = Span::from_micros(5 * base.as_micros());
        Self::of(phase, [(workers, base), (workers, slow), (workers, base)])
    }

    fn of(phase: Span, steps: [(u64, Span); 3]) -> Self {
        let at = |number: u64| Span::from_micros(phase.as_micros() * number);
        let step = |(number, (workers, base))| Step { from: at(number), workers, base };
        Self {
            seed: 14,
            work: Work::Even,
            steps: (0..).zip(steps).map(step).collect(),
            offered: 2_000,
            end: at(3),
            slice: Span::from_millis(500),
        }
    }

    /// Returns the capacity at this time.
    #[expect(clippy::missing_panics_doc, reason = "the first step is from the beginning")]
    pub fn at(&self, time: Span) -> Step {
        let now = self.steps.iter().rev().find(|step| step.from <= time);
        *now.expect("the first step is from the beginning")
    }

    /// Returns each step with its end.
    pub fn phases(&self) -> impl Iterator<Item = (Step, Span)> {
        let ends = self.steps.iter().skip(1).map(|step| step.from).chain([self.end]);
        self.steps.iter().copied().zip(ends)
    }
}

/// The record of a slice of time.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Its start.
    pub from: Span,
    /// The smallest limit during it.
    pub limit_min: u64,
    /// The limit at its end.
    pub limit: u64,
    /// The number of requests that were served.
    pub served: u64,
    /// Their latencies, from admission on.
    pub latencies: Vec<Span>,
}

/// Returns a percentile of the latencies, or zero if there are none.
pub fn percentile<'a>(slices: impl IntoIterator<Item = &'a Slice>, percent: usize) -> Span {
    let mut all: Vec<Span> =
        slices.into_iter().flat_map(|slice| &slice.latencies).copied().collect();
    all.sort_unstable();
    let rank = (all.len() * percent).div_ceil(100).max(1);
    all.get(rank - 1).copied().unwrap_or(Span::ZERO)
}

/// Runs the simulation, and returns its record.
pub fn run(trial: &Trial, adaptive: Adaptive) -> Vec<Slice> {
    Simulation::new(trial, adaptive).run()
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Leave(u64),
    Step,
    EndSlice,
}

struct Simulation<'a> {
    trial: &'a Trial,
    clock: ManualClock,
    gate: AdaptiveGate<ManualClock>,
    random: Random,
    start: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    event_number: u64,
    /// Requests that were admitted and are not served yet, with the time of admission.
    jobs: HashMap<u64, (AdaptivePermit<ManualClock>, Timestamp)>,
    queue: VecDeque<u64>,
    busy: u64,
    slices: Vec<Slice>,
}

impl<'a> Simulation<'a> {
    fn new(trial: &'a Trial, adaptive: Adaptive) -> Self {
        let clock = ManualClock::new();
        let gate = AdaptiveGate::with_clock(adaptive, clock.clone());
        let first = Slice { limit_min: gate.limit(), ..Slice::default() };
        Self {
            trial,
            start: clock.now(),
            clock,
            gate,
            random: Random(trial.seed),
            events: BinaryHeap::new(),
            event_number: 0,
            jobs: HashMap::new(),
            queue: VecDeque::new(),
            busy: 0,
            slices: vec![first],
        }
    }

    fn run(mut self) -> Vec<Slice> {
        self.plan(self.start, Event::Arrive);
        self.plan(self.start + self.trial.slice, Event::EndSlice);
        for step in &self.trial.steps {
            self.plan(self.start + step.from, Event::Step);
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at.since(self.start) >= self.trial.end {
                break;
            }
            self.clock.set(at);
            match event {
                Event::Arrive => self.arrive(at),
                Event::Leave(job) => self.leave(at, job),
                Event::Step => self.serve(at),
                Event::EndSlice => self.end_slice(at),
            }
            let limit = self.gate.limit();
            let slice = self.slice();
            slice.limit = limit;
            slice.limit_min = slice.limit_min.min(limit);
        }
        self.slices
    }

    fn plan(&mut self, at: Timestamp, event: Event) {
        self.event_number += 1;
        self.events.push(Reverse((at, self.event_number, event)));
    }

    fn arrive(&mut self, now: Timestamp) {
        // Evenly distributed from zero to twice the mean.
        let pause = self.random.below(2 * 1_000_000 / self.trial.offered + 1);
        self.plan(now + Span::from_micros(pause), Event::Arrive);
        if let Ok(permit) = self.gate.try_acquire() {
            let job = self.event_number;
            self.jobs.insert(job, (permit, now));
            self.queue.push_back(job);
            self.serve(now);
        }
    }

    /// Gives waiting requests to free workers.
    fn serve(&mut self, now: Timestamp) {
        let step = self.trial.at(now.since(self.start));
        while self.busy < step.workers
            && let Some(job) = self.queue.pop_front()
        {
            self.busy += 1;
            let work = self.work(step.base);
            self.plan(now + work, Event::Leave(job));
        }
    }

    fn work(&mut self, base: Span) -> Span {
        let base = base.as_micros();
        Span::from_micros(match self.trial.work {
            Work::Even => base / 2 + self.random.below(base + 1),
            Work::Wild => base / 2 * (1 + u64::from(self.random.next().trailing_ones())),
        })
    }

    fn leave(&mut self, now: Timestamp, job: u64) {
        self.busy -= 1;
        if let Some((permit, admitted)) = self.jobs.remove(&job) {
            permit.succeed();
            let slice = self.slice();
            slice.served += 1;
            slice.latencies.push(now.since(admitted));
        }
        self.serve(now);
    }

    fn end_slice(&mut self, now: Timestamp) {
        self.plan(now + self.trial.slice, Event::EndSlice);
        let limit = self.gate.limit();
        let from = now.since(self.start);
        self.slices.push(Slice { from, limit_min: limit, limit, ..Slice::default() });
    }

    fn slice(&mut self) -> &mut Slice {
        self.slices.last_mut().expect("there is one from the start")
    }
}
