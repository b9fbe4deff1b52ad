//! Servers whose limits are in Redis.

mod ad_hoc_rules;
mod deployments;
mod findings;
mod guide;
mod harness;
mod hostile;
mod idempotency;
mod outage;
mod pipelines;
mod refused;
mod waiting;
