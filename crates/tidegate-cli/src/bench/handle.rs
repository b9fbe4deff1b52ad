//! What a connection shares with its pacer and with the rest of the run.

use super::Plan;
use super::schedule::{Rate, Schedule, Times, now_us};
use super::stats::LoadStats;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use tidegate::SystemClock;
use tokio::sync::Notify;

/// The state that all connections of a run share.
#[derive(Debug)]
pub(super) struct LoadContext {
    pub(super) plan: Plan,
    pub(super) clock: SystemClock,
    pub(super) times: OnceLock<Times>,
    pub(super) progress: Progress,
    pub(super) has_failed: AtomicBool,
}

/// Counters for the progress messages.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) answered: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl LoadContext {
    pub(super) fn times(&self) -> &Times {
        self.times.get().expect("connections run after the start")
    }

    pub(super) fn schedule(&self, connection: u64) -> Schedule {
        let Plan { rate, duration, connections, .. } = self.plan;
        Schedule::new(rate, duration, connections as u64, connection)
    }
}

/// A connection's link to the run and to the pacer that wakes it.
#[derive(Clone, Debug)]
pub(super) struct ConnectionHandle {
    pub(super) load: Arc<LoadContext>,
    pub(super) number: u64,
    /// Signalled when a request is due and when the run is over.
    pub(super) wake: Arc<Notify>,
}

impl ConnectionHandle {
    pub(super) fn new(load: &Arc<LoadContext>, number: u64) -> Self {
        Self { load: Arc::clone(load), number, wake: Arc::new(Notify::new()) }
    }

    pub(super) fn now_us(&self) -> u64 {
        now_us(&self.load.clock)
    }

    /// Returns whether a connection with this schedule has nothing left to do.
    pub(super) fn is_over(&self, schedule: &Schedule, is_idle: bool) -> bool {
        let (times, now_us) = (self.load.times(), self.now_us());
        let has_more = || schedule.next_due_us(times, now_us).is_some();
        now_us >= times.give_up_us() || (is_idle && !has_more())
    }

    /// Records the requests that were due and could not be sent.
    pub(super) fn end(&self, mut schedule: Schedule, stats: &mut LoadStats) {
        let now_us = self.now_us();
        if self.load.plan.rate == Rate::Max {
            return;
        }
        while let Some(due_us) = schedule.next_due_us(self.load.times(), now_us) {
            schedule.advance();
            stats.record_unsent(due_us, now_us);
        }
    }
}
