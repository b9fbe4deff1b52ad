//! The step of T14 under every law of adaptive limits, and its picture in the guide.
//!
//! Always   The picture shows the numbers that the test checks.

use crate::plot::{Plot, Scale, Series, panels};
use crate::service::{Slice, Step, Trial, percentile, run};
use tidegate::Span;
use tidegate::load::Adaptive;

/// The average time of a request that does not wait.
pub const BASE: Span = Span::from_millis(50);
/// The duration of each capacity.
pub const PHASE: Span = Span::from_secs(30);

/// Returns the laws, with their parameters.
pub fn laws() -> [(&'static str, Adaptive); 3] {
    let too_long = Span::from_micros(2 * BASE.as_micros());
    [
        ("AIMD", Adaptive::aimd(too_long)),
        ("Vegas", Adaptive::vegas()),
        ("Gradient2", Adaptive::gradient2()),
    ]
}

/// Runs the step under each law.
pub fn runs(trial: &Trial) -> Vec<(&'static str, Vec<Slice>)> {
    laws().into_iter().map(|(name, law)| (name, run(trial, law))).collect()
}

/// Draws three panels: throughput, limit, and latency.
pub fn picture(trial: &Trial, runs: &[(&'static str, Vec<Slice>)]) -> String {
    let per_second = 1_000_000 / trial.slice.as_micros();
    let served = panel(
        "A service that falls from 1000 requests a second to 200, and recovers",
        "served a second",
        all(runs, |slice| slice.served * per_second),
        ("capacity", steps(trial, |step| step.capacity())),
    );
    let limit = panel(
        "The limit on what is in flight",
        "limit",
        all(runs, |slice| slice.limit),
        ("workers", steps(trial, |step| step.workers)),
    );
    let latency = panel(
        "99 of 100 requests took at most",
        "ms",
        all(runs, |slice| percentile([slice], 99).as_micros() / 1_000),
        ("3 × without a queue", steps(trial, |step| 3 * step.base.as_micros() / 1_000)),
    );
    panels(&[served, limit, latency], 330.0)
}

type Points = Vec<(f64, f64)>;

fn all(
    runs: &[(&'static str, Vec<Slice>)],
    value: impl Fn(&Slice) -> u64,
) -> Vec<(&'static str, Points)> {
    let points = |slices: &[Slice]| {
        slices.iter().map(|slice| (seconds(slice.from), float(value(slice)))).collect()
    };
    runs.iter().map(|(name, slices)| (*name, points(slices))).collect()
}

/// Returns a line with a vertical step at each change of capacity.
fn steps(trial: &Trial, value: impl Fn(Step) -> u64) -> Points {
    let sides = trial.phases().map(|(step, end)| {
        let y = float(value(step));
        [(seconds(step.from), y), (seconds(end), y)]
    });
    sides.flatten().collect()
}

fn panel(
    title: &str,
    y_label: &str,
    lines: Vec<(&'static str, Points)>,
    reference: (&str, Points),
) -> Plot {
    let lines = lines.into_iter().map(|(name, points)| Series::measured(name, points));
    Plot {
        title: title.to_owned(),
        x_label: "seconds".to_owned(),
        y_label: y_label.to_owned(),
        scale: Scale::Plain,
        series: lines.chain([Series::reference(reference.0, reference.1)]).collect(),
    }
}

fn seconds(span: Span) -> f64 {
    float(span.as_micros()) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "none of the numbers of a picture is beyond 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}
