//! Connections of peers that have not shown who they are: how many one address may have, and which of them makes room.
//! Where nobody has to show it, connections are only counted, and the operator's make room for each other.
//!
//! Always   Where the listeners are full, a connection that has shown no token is closed for a new one: of those that are idle, the
//!          one that connected first (decision 0043). A connection that has shown its token is never closed for another one. So
//!          the former take no more than what the latter leave, and a health probe is always answered.
//! Always   A connection is here from when it is accepted until its peer is known, or it ends. All workers share it: a newcomer
//!          may come to a worker that has no stranger.

use super::Activity;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate::store::ClientId;
use tokio::task::AbortHandle;

/// The strangers of some listeners that are full together.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Here>);

#[derive(Debug, Default)]
struct Here {
    /// Those that can be closed, in the order they came in.
    closable: BTreeMap<u64, Connection>,
    by_address: HashMap<ClientId, usize>,
    last: u64,
}

#[derive(Debug)]
struct Connection {
    activity: Arc<Activity>,
    close: AbortHandle,
}

/// A place among strangers; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    strangers: Arc<Strangers>,
    address: ClientId,
    number: u64,
}

/// Of so many, an idle one is looked for.
const LOOKED_AT: usize = 64;

impl Strangers {
    fn here(&self) -> MutexGuard<'_, Here> {
        self.0.lock().expect("nobody panics with it")
    }

    /// How many connections this address has here.
    pub(super) fn of(&self, address: ClientId) -> usize {
        self.here().by_address.get(&address).copied().unwrap_or_default()
    }

    /// A connection has come in, and can be closed by this; one without it is counted only.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: ClientId,
        activity: &Arc<Activity>,
        close: Option<AbortHandle>,
    ) {
        let mut here = self.here();
        here.last += 1;
        let number = here.last;
        *here.by_address.entry(address).or_default() += 1;
        if let Some(close) = close {
            here.closable.insert(number, Connection { activity: Arc::clone(activity), close });
        }
        drop(here);
        activity.takes(Place { strangers: Arc::clone(self), address, number });
    }

    /// Closes the one that came first of those that wait for nothing; where the first are all in the middle of something, the
    /// first. `false` if there is none.
    pub(super) fn close_one(&self) -> bool {
        let mut here = self.here();
        let mut first = here.closable.iter().take(LOOKED_AT);
        let idle = first.find(|(_, it)| it.activity.is_idle()).map(|(number, _)| *number);
        let number = idle.or_else(|| here.closable.keys().next().copied());
        let gone = number.and_then(|number| here.closable.remove(&number));
        drop(here);
        if let Some(gone) = &gone {
            gone.close.abort();
        }
        gone.is_some()
    }
}

impl Here {
    fn leave(&mut self, address: ClientId, number: u64) -> Option<Connection> {
        if let Entry::Occupied(mut count) = self.by_address.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.closable.remove(&number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let gone = self.strangers.here().leave(self.address, self.number);
        // Not under the lock: what it has may be the last of its kind.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::Peers;
    use super::super::wakeful::Wakeful;
    use super::*;
    use crate::config::Caps;
    use crate::listen::Wire;
    use tidegate::Span;

    #[tokio::test]
    async fn of_strangers_the_first_idle_one_makes_room_and_who_is_known_does_not() {
        let peers = Peers::new(Arc::new(Wakeful::new(Span::ZERO)));
        let strangers = Arc::new(Strangers::default());
        let (one, two) = (ClientId::from_u64(1), ClientId::from_u64(2));
        let mut tasks = Vec::new();
        for address in [one, one, two, two] {
            let activity = peers.enter(Wire::Resp, &Caps::default()).1;
            activity.must_be_known_within(std::time::Duration::from_secs(9));
            let task = tokio::spawn(std::future::pending::<()>());
            strangers.enter(address, &activity, Some(task.abort_handle()));
            tasks.push((activity, task));
        }
        assert_eq!((strangers.of(one), strangers.of(two)), (2, 2));
        tasks[0].0.is_known();
        assert_eq!(strangers.of(one), 1);
        tasks[1].0.is_writing();
        assert!(strangers.close_one());
        let ended = |at: usize| tasks[at].1.is_finished();
        tokio::task::yield_now().await;
        assert_eq!([0, 1, 2, 3].map(ended), [false, false, true, false], "the first idle one");
        assert!(strangers.close_one() && strangers.close_one());
        tokio::task::yield_now().await;
        assert_eq!([0, 1, 2, 3].map(ended), [false, true, true, true]);
        assert!(!strangers.close_one(), "who is known stays");
        for (activity, _) in &tasks {
            activity.gives_up_place();
        }
        assert_eq!((strangers.of(one), strangers.of(two)), (0, 0));
    }
}
