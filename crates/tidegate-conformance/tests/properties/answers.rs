//! Verdict, `remaining`, `retry_after` and `reset_after` equal the oracle's after every step (T01 to T05, T08, T09). `warmup.rs`
//! compares warm-ups, and `tickets.rs` leases with tickets.

use crate::check::check;
use crate::generate::{ALGORITHMS, Action, Case, steady};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use tidegate_conformance::oracle::ExpectedDecision;

fn answers_as_the_oracle(algorithm: &str) {
    let (_, rules) = ALGORITHMS
        .into_iter()
        .find(|(name, _)| *name == algorithm)
        .expect("the tests name algorithms that are in the list");
    check(&steady(rules()), same_answers);
}

fn same_answers(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    let mut oracle = case.rule.oracle(track.birth).expect("only a warm-up has none");
    for step in case.steps {
        track.pass(step.delta);
        match step.action {
            Action::Take(cost) => {
                let cost = track.cost(cost);
                let answer = ExpectedDecision::from(track.take(cost));
                let expected = oracle.decide(track.now, cost);
                ensure!(answer == expected, track, "expected {expected:?}, got {answer:?}");
            }
            Action::Refund(cost) => {
                let cost = track.cost(cost);
                track.refund(cost);
                oracle.refund(track.now, cost);
            }
        }
    }
    Ok(())
}

#[test]
fn a_token_bucket_answers_as_the_oracle() {
    answers_as_the_oracle("token bucket");
}

#[test]
fn a_leaky_bucket_answers_as_the_oracle() {
    answers_as_the_oracle("leaky");
}

#[test]
fn a_queue_answers_as_the_oracle() {
    answers_as_the_oracle("queue");
}

#[test]
fn a_fixed_window_answers_as_the_oracle() {
    answers_as_the_oracle("fixed");
}

#[test]
fn a_calendar_window_answers_as_the_oracle() {
    answers_as_the_oracle("calendar");
}

#[test]
fn a_sliding_log_answers_as_the_oracle() {
    answers_as_the_oracle("sliding-log");
}

#[test]
fn two_counters_answer_as_the_oracle() {
    answers_as_the_oracle("sliding");
}

#[test]
fn a_smooth_limit_answers_as_the_oracle() {
    answers_as_the_oracle("smooth");
}

#[test]
fn concurrency_answers_as_the_oracle() {
    answers_as_the_oracle("concurrency");
}

#[test]
fn nginx_answers_as_the_oracle() {
    answers_as_the_oracle("nginx");
}
