//! A flash sale: many buyers, few things, one database; five ways of selling, each with and without limits.
//!
//! Always   A thing is sold and its order written in one transaction: `orders == sold` at every moment, also after a
//!          crash. Every way but [`Way::Naive`] keeps `sold <= stock`.
//! Always   The limits keep load away from the database. That nothing is oversold is the database's work alone: a
//!          limit is no lock.

pub mod answer;
pub mod database;
pub mod drive;
pub mod entrance;
pub mod http;
pub mod options;
pub mod selling;
pub mod serve;
pub mod shop;
pub mod visitor;
pub mod way;

pub use answer::Answer;
pub use database::{Database, Tally};
pub use entrance::Entrance;
pub use shop::Shop;
pub use way::Way;
