//! Connections of peers that have not authenticated: how many one address may have, and which of them is closed for a new one.
//!
//! Where peers need not authenticate, connections are only counted, and those of the admin listener are closed for each other.
//!
//! Invariant While the listeners are full, a new connection closes the oldest idle one that has not authenticated (decision 0043).
//!           A connection that has authenticated is never closed for another one. So unauthenticated peers get only what
//!           authenticated ones leave, and a health probe is always answered.
//! Invariant A connection is registered from when it is accepted until its peer authenticates or it ends. All workers share the
//!           registry, because a new connection may come to a worker that has none to close.

use super::deadlines::ConnectionState;
use crate::sync::lock;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate::store::ClientId;
use tokio::task::AbortHandle;

/// The unauthenticated connections of listeners that share one maximum.
#[derive(Debug, Default)]
pub(super) struct Unauthenticated(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    /// Connections that may be closed, oldest first.
    closable: BTreeMap<u64, Connection>,
    by_address: HashMap<ClientId, usize>,
    last_id: u64,
}

#[derive(Debug)]
struct Connection {
    state: Arc<ConnectionState>,
    close: AbortHandle,
}

/// A connection's entry in the registry; dropping it removes the entry.
#[derive(Debug)]
struct Registration {
    registry: Arc<Unauthenticated>,
    address: ClientId,
    id: u64,
}

/// Number of connections, oldest first, among which an idle one is searched.
const SEARCHED_MAX: usize = 64;

impl Unauthenticated {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.0)
    }

    /// Returns the number of connections from this address.
    pub(super) fn count(&self, address: ClientId) -> usize {
        self.registry().by_address.get(&address).copied().unwrap_or_default()
    }

    /// Registers a new connection. Without a handle to close it, it is only counted.
    pub(super) fn add(
        self: &Arc<Self>,
        address: ClientId,
        state: &Arc<ConnectionState>,
        close: Option<AbortHandle>,
    ) {
        let mut registry = self.registry();
        registry.last_id += 1;
        let id = registry.last_id;
        *registry.by_address.entry(address).or_default() += 1;
        if let Some(close) = close {
            registry.closable.insert(id, Connection { state: Arc::clone(state), close });
        }
        drop(registry);
        state.hold_slot(Box::new(Registration { registry: Arc::clone(self), address, id }));
    }

    /// Closes the oldest idle connection; if none of the first [`SEARCHED_MAX`] is idle, the oldest. Returns `false` if there is
    /// none to close.
    pub(super) fn close_one(&self) -> bool {
        let mut registry = self.registry();
        let mut oldest = registry.closable.iter().take(SEARCHED_MAX);
        let idle = oldest.find(|(_, it)| it.state.is_idle()).map(|(id, _)| *id);
        let id = idle.or_else(|| registry.closable.keys().next().copied());
        let closed = id.and_then(|id| registry.closable.remove(&id));
        drop(registry);
        if let Some(closed) = &closed {
            closed.close.abort();
        }
        closed.is_some()
    }
}

impl Registry {
    fn remove(&mut self, address: ClientId, id: u64) -> Option<Connection> {
        if let Entry::Occupied(mut count) = self.by_address.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.closable.remove(&id)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let removed = self.registry.registry().remove(self.address, self.id);
        // Dropped after the lock is released: it may hold the last reference to the connection's state.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::deadlines::Connections;
    use super::*;
    use crate::config::Caps;
    use crate::net::Wire;

    #[tokio::test]
    async fn the_oldest_idle_unauthenticated_connection_is_closed_and_an_authenticated_one_never() {
        let connections = Connections::default();
        let registry = Arc::new(Unauthenticated::default());
        let (one, two) = (ClientId::from_u64(1), ClientId::from_u64(2));
        let mut tasks = Vec::new();
        for address in [one, one, two, two] {
            let state = connections.add(Wire::Resp, &Caps::default()).1;
            state.require_authentication_within(std::time::Duration::from_secs(9));
            let task = tokio::spawn(std::future::pending::<()>());
            registry.add(address, &state, Some(task.abort_handle()));
            tasks.push((state, task));
        }
        assert_eq!((registry.count(one), registry.count(two)), (2, 2));
        tasks[0].0.set_authenticated();
        assert_eq!(registry.count(one), 1);
        tasks[1].0.begin_write();
        assert!(registry.close_one());
        let is_closed = |at: usize| tasks[at].1.is_finished();
        tokio::task::yield_now().await;
        assert_eq!([0, 1, 2, 3].map(is_closed), [false, false, true, false], "the first idle one");
        assert!(registry.close_one() && registry.close_one());
        tokio::task::yield_now().await;
        assert_eq!([0, 1, 2, 3].map(is_closed), [false, true, true, true]);
        assert!(!registry.close_one(), "the authenticated connection stays");
        for (state, _) in &tasks {
            state.release_slot();
        }
        assert_eq!((registry.count(one), registry.count(two)), (0, 0));
    }
}
