//! The baseline: how long a request takes without a queue, measured by lowering the limit now and then.
//!
//! A latency that is only observed includes the queue that the limit itself allows, so the limit would creep up for as long
//! as the service is saturated. Therefore, every [`PROBE_ROUNDS`] full rounds, and whenever a law has lowered the limit to
//! half of its maximum since the last probe, a probe halves the limit for a short time: during one round the earlier
//! requests finish, and the next two rounds are measured. If the latency fell with the limit, there still was a queue, and
//! the limit is halved again.
//!
//! Always   A probe ends: each further halving needs a latency that fell by two fifths, and a limit above its minimum.
//!          After the probe, the earlier limit is restored.
//! Cost     Three short rounds in forty at half of the limit: a few percent of the throughput.

use super::back_off;
use super::round::Round;
use crate::time::Span;

/// Full rounds between two probes. Netflix's Vegas measures again every 15 to 30 rounds, without lowering the limit.
const PROBE_ROUNDS: u32 = 40;
/// A round with much less latency, or one without a queue, moves the baseline by one part in this many.
const PART: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    rtt: Option<Span>,
    /// Full rounds since the last measurement.
    rounds: u32,
    /// The largest limit since then.
    top: u64,
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The limit to go back to.
    limit: u64,
    /// The latency before the last halving.
    rtt: Span,
    /// Whether the requests from before the halving have finished.
    is_drained: bool,
}

/// The input of a law: the latency of a full round without overload, and the baseline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) rtt: Span,
    pub(super) baseline: Span,
}

impl Baseline {
    pub(super) fn rtt(&self) -> Option<Span> {
        self.rtt
    }

    /// Returns the next limit, from the law or from a probe.
    pub(super) fn next(
        &mut self,
        limit: u64,
        min: u64,
        round: &Round,
        law: impl FnOnce(u64, Latency) -> u64,
    ) -> u64 {
        if let Some(probe) = self.probe.take() {
            return self.go_on(probe, limit, min, round);
        }
        let most = if round.is_overload() { back_off(limit) } else { u64::MAX };
        let Some(rtt) = round.rtt() else { return most.min(limit) };
        let baseline = *self.rtt.get_or_insert(rtt);
        if !round.uses_half_of(limit) {
            // Less than half of the limit is in use, so the latency includes no queue.
            self.move_to(baseline, rtt);
            return most.min(limit);
        }
        if has_fallen(baseline, rtt) {
            // The service became faster. A smaller change is noise; following it down would turn noise into a queue.
            self.move_to(baseline, rtt);
        }
        self.rounds += 1;
        if self.rounds >= PROBE_ROUNDS {
            return self.probe(most.min(limit), min, rtt);
        }
        self.top = self.top.max(limit);
        let next = most.min(law(limit, Latency { rtt, baseline: self.rtt.unwrap_or(rtt) }));
        if next <= self.top / 2 && next > min {
            // Either this is right, or the service became slower and has no queue at all.
            return self.probe(next, min, rtt);
        }
        next
    }

    fn move_to(&mut self, baseline: Span, rtt: Span) {
        let (from, to) = (baseline.as_micros(), rtt.as_micros());
        let moved = if to > from { from + (to - from) / PART } else { from - (from - to) / PART };
        self.rtt = Some(Span::from_micros(moved).at_least_1us());
    }

    fn probe(&mut self, limit: u64, min: u64, rtt: Span) -> u64 {
        (self.rounds, self.top) = (0, 0);
        if limit <= min {
            // The limit cannot be lowered, so this latency is the shortest there is.
            self.rtt = Some(rtt);
            return limit;
        }
        self.probe = Some(Probe { limit, rtt, is_drained: false });
        half(limit, min)
    }

    fn go_on(&mut self, probe: Probe, limit: u64, min: u64, round: &Round) -> u64 {
        if !probe.is_drained {
            self.probe = Some(Probe { is_drained: true, ..probe });
            return limit;
        }
        let back = if round.is_overload() { back_off(probe.limit) } else { probe.limit };
        let Some(rtt) = round.rtt() else { return back };
        if limit > min && is_still_queued(probe.rtt, rtt) {
            self.probe = Some(Probe { rtt, is_drained: false, ..probe });
            return half(limit, min);
        }
        self.rtt = Some(self.rtt.map_or(rtt, |known| confirmed(known, rtt)));
        back
    }

    /// Returns whether the next round measures the latency without a queue.
    pub(super) fn is_measuring(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.is_drained)
    }
}

fn half(limit: u64, min: u64) -> u64 {
    (limit / 2).max(min)
}

/// Combines the old baseline with a measurement: the mean if they hardly differ, else the measurement.
fn confirmed(known: Span, measured: Span) -> Span {
    if has_fallen(known, measured) || has_fallen(measured, known) {
        return measured;
    }
    Span::from_micros(known.as_micros().midpoint(measured.as_micros())).at_least_1us()
}

/// Returns whether there is still a queue after a halving. With a queue, the latency is halved with the limit; if it fell by
/// less than two fifths, the queue is gone.
fn is_still_queued(before: Span, after: Span) -> bool {
    u128::from(after.as_micros()) * 5 <= u128::from(before.as_micros()) * 3
}

/// Returns whether the latency fell by a quarter, which is more than the noise between rounds.
fn has_fallen(before: Span, after: Span) -> bool {
    u128::from(after.as_micros()) * 4 <= u128::from(before.as_micros()) * 3
}
