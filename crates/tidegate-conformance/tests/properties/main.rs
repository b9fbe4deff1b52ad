//! Properties of every rule and every sequence of requests.
//!
//! `TIDEGATE_CASES=n` sets the number of cases per algorithm and claim. Default: 10 000.

mod answers;
mod bad_rules;
mod bounds;
mod calendar;
mod changes;
mod check;
mod clock;
mod explain;
mod generate;
mod horizon;
mod narrow;
mod promises;
mod rates;
mod refunds;
mod steps;
mod text;
mod tickets;
mod track;
mod warmup;
