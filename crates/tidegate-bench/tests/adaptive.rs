//! T14: on a service whose capacity steps from 1000 a second to 200 and back, with 2000 callers a second,
//! every law finds the capacity within 10 s, never lowers the limit to 0, and keeps latency and goodput.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use tidegate::Span;
use tidegate_bench::service::{Slice, Step, Trial, Work, percentile, run};
use tidegate_bench::step::{BASE, PHASE, laws, picture, runs};

const SETTLED: Span = Span::from_secs(10);

/// The slices from 10 s after each step to the next.
fn settled<'a>(trial: &Trial, slices: &'a [Slice]) -> Vec<(Step, &'a [Slice])> {
    let index = |at: Span| usize::try_from(at.as_micros() / trial.slice.as_micros()).unwrap();
    let settled = |step: Step, end: Span| &slices[index(step.from + SETTLED)..index(end)];
    trial.phases().map(|(step, end)| (step, settled(step, end))).collect()
}

fn check(name: &str, trial: &Trial, slices: &[Slice]) {
    assert!(slices.iter().all(|slice| slice.limit_min > 0), "{name}: never 0");
    for (step, slices) in settled(trial, slices) {
        let capacity = step.capacity();
        let what = format!("{name}, capacity {capacity}, seed {}", trial.seed);
        let p99 = percentile(slices, 99);
        assert!(p99.as_micros() <= 3 * step.base.as_micros(), "{what}: p99 is {p99}");
        let seconds = u64::try_from(slices.len()).unwrap() * trial.slice.as_micros() / 1_000;
        let goodput = slices.iter().map(|slice| slice.served).sum::<u64>() * 1_000_000 / seconds;
        assert!(goodput >= capacity * 850, "{what}: goodput is {goodput} a thousand seconds");
        // Within a fifth, over two seconds at a time, because work varies and a probe takes a moment. The throughput is
        // compared with the capacity; the limit is above the number of workers by the requests that wait.
        for slices in slices.chunks_exact(4) {
            let served = slices.iter().map(|slice| slice.served).sum::<u64>() / 2;
            assert!(served.abs_diff(capacity) <= capacity / 5, "{what}: {served} a second");
        }
    }
}

#[test]
fn every_law_finds_the_capacity_after_each_step() {
    for seed in [14, 1, 2] {
        let trial = Trial { seed, ..Trial::fewer(BASE, PHASE) };
        for (name, slices) in runs(&trial) {
            check(name, &trial, &slices);
        }
    }
}

/// AIMD is left out: it compares with a fixed latency, which a service that becomes five times slower exceeds.
#[test]
fn a_slower_service_is_not_mistaken_for_one_with_a_queue() {
    for seed in [14, 1, 2] {
        let trial = Trial { seed, ..Trial::slower(BASE, PHASE) };
        for (name, law) in laws().into_iter().filter(|(name, _)| *name != "AIMD") {
            check(name, &trial, &run(&trial, law));
        }
    }
}

#[test]
fn a_service_with_highly_variable_work_is_used_well() {
    // One request in a hundred takes 3.5 times the mean, which is the latency without a queue to compare with.
    let trial = Trial { work: Work::Wild, ..Trial::fewer(BASE, PHASE) };
    for (name, law) in laws().into_iter().filter(|(name, _)| *name != "AIMD") {
        let slices = run(&trial, law);
        assert!(slices.iter().all(|slice| slice.limit_min > 0), "{name}: never 0");
        for (step, slices) in settled(&trial, &slices) {
            let capacity = step.capacity();
            let p99 = percentile(slices, 99);
            assert!(p99 <= Span::from_millis(3 * 175), "{name}, capacity {capacity}: p99 is {p99}");
            let served = slices.iter().map(|slice| slice.served).sum::<u64>();
            let seconds = u64::try_from(slices.len()).unwrap() / 2;
            assert!(served >= capacity * seconds * 85 / 100, "{name}: {served} in {seconds} s");
        }
    }
}

#[test]
fn the_picture_in_the_guide_is_current() {
    let trial = Trial::fewer(BASE, PHASE);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/adaptive.svg");
    let drawn = picture(&trial, &runs(&trial));
    let kept = std::fs::read_to_string(file).expect("the guide has a picture");
    assert!(
        kept == drawn,
        "the picture has changed; check it and update it: cargo run --release -p tidegate-bench --example adaptive -- \
         docs/guide/adaptive.svg"
    );
}
