//! Waiting for admission: futures, reservations and permits.
//!
//! The queues are part of the state of a limit, in `slot`. This module has the caller's side.

mod acquire;
mod block;
mod permit;
mod reservation;

pub use acquire::Acquire;
pub use permit::Permit;
pub use reservation::Reservation;

pub(crate) use block::block_on;
