//! A server whose limits are in Redis.

mod desk;
mod findings;
mod guide;
mod outage;
mod pipelines;
