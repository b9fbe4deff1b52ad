//! A server whose limits are in Redis.

mod deployments;
mod desk;
mod findings;
mod guide;
mod once;
mod outage;
mod pipelines;
mod refused;
mod waiting;
