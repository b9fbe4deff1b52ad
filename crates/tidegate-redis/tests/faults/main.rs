//! Faults of Redis and of the network: real servers, and a proxy that injects faults.
//!
//! The comment above a test begins with its number in the catalogue (T22 to T35).
//! Times are measured many times, and the median counts, since the machine may be busy.

mod clock;
mod cluster;
mod cut;
mod examine;
mod failover;
mod joint;
mod leased;
mod lifetime;
mod lost_reply;
mod moving_slots;
mod outage;
mod outage_bound;
mod permits;
mod refusals;
mod round_trips;
mod share;
mod silence;
mod slow;
mod stage;
