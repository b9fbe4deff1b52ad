//! A flash sale: many buyers, few items, one database; five ways of selling, each with and without limits.
//!
//! Always   The stock and the order change in one transaction: `orders == sold` at every moment, also after a
//!          crash. Every way but [`Way::Naive`] keeps `sold <= stock`.
//! Always   The limits keep load away from the database. Only the database prevents overselling: a limit is not a lock.

pub mod database;
pub mod drive;
pub mod entrance;
pub mod http;
pub mod http_buyer;
pub mod options;
pub mod reply;
pub mod selling;
pub mod serve;
pub mod shop;
pub mod way;

pub use database::{Database, Tally};
pub use entrance::Entrance;
pub use reply::SaleReply;
pub use shop::Shop;
pub use way::Way;
