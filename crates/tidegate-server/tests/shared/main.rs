//! A server whose limits are in Redis.

mod desk;
mod guide;
mod outage;
mod pipelines;
