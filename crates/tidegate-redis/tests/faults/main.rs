//! What happens when Redis, or the way to it, fails: real servers, and a network that fails as it is told.
//!
//! A claim begins with its number in the list of what is demanded (T22 to T35).
//! Always   Where a demand is in milliseconds, many are measured and the median is looked at: the machine is busy, and
//!          a single late one says nothing about us.

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
mod places;
mod refusals;
mod round_trips;
mod share;
mod silence;
mod slow;
mod stage;
