//! The peers, each used as its documentation shows, with its defaults.
//!
//! Always   A peer that accepts the number of keys as a parameter gets it. A peer that cannot be shared between threads is
//!          put behind a lock.

mod governor;
#[cfg(feature = "limitador")]
mod limitador;
mod pingora;
mod straw_man;
mod throttlecrab;

use crate::entrant::Entrant;
use crate::traffic::Key;

/// Its name in tables and targets.
pub const GOVERNOR: &str = governor::NAME;

/// Returns the peers that accept any type of key.
pub fn of_any_key<K: Key>() -> Vec<Entrant<K>> {
    vec![governor::entrant(), pingora::entrant(), straw_man::entrant()]
}

/// Returns the peers that accept strings, including those that accept nothing else.
pub fn of_strings() -> Vec<Entrant<String>> {
    let mut peers = of_any_key();
    peers.extend(throttlecrab::entrants());
    #[cfg(feature = "limitador")]
    peers.push(limitador::entrant());
    peers
}
