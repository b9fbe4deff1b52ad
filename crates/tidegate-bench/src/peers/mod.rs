//! The peers, each as its own documentation says it is to be used, with its defaults.
//!
//! Always   A peer that is told how many keys to expect is told it. One that cannot be shared is put
//!          behind a lock.

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

/// Those that take any key.
pub fn of_any_key<K: Key>() -> Vec<Entrant<K>> {
    vec![governor::entrant(), pingora::entrant(), straw_man::entrant()]
}

/// Those that take strings, and those that take nothing else.
pub fn of_strings() -> Vec<Entrant<String>> {
    let mut peers = of_any_key();
    peers.extend(throttlecrab::entrants());
    #[cfg(feature = "limitador")]
    peers.push(limitador::entrant());
    peers
}
