//! Waiting for admission: futures, reservations and permits.
//!
//! The queues themselves belong to the state that they wait for, in `slot`; what is here is the caller's side.

mod acquire;
mod block;
mod permit;
mod reservation;

pub use acquire::Acquire;
pub use permit::Permit;
pub use reservation::Reservation;

pub(crate) use block::block_on;
