//! A slot for one connection, which may be lost and replaced at any time.

use crate::sync::Mutex;
use redis::aio::MultiplexedConnection;

/// A slot for a connection. Callers share the connection: requests of the same moment are sent as one pipeline.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    connection: Option<MultiplexedConnection>,
    /// How many connections this slot has had.
    generation: u64,
}

/// A connection and its generation.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) stream: MultiplexedConnection,
    pub(super) generation: u64,
}

impl ConnectionSlot {
    pub(super) fn connection(&self) -> Option<(&Self, Connection)> {
        let slot = self.0.lock();
        let stream = slot.connection.clone()?;
        Some((self, Connection { stream, generation: slot.generation }))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.0.lock().connection.is_some()
    }

    pub(super) fn put(&self, connection: MultiplexedConnection) {
        let mut slot = self.0.lock();
        slot.generation += 1;
        slot.connection = Some(connection);
    }

    /// Drops the connection of this generation, unless it was replaced already.
    pub(super) fn discard(&self, generation: u64) {
        let mut slot = self.0.lock();
        if slot.generation == generation {
            slot.connection = None;
        }
    }

    pub(super) fn close(&self) {
        self.0.lock().connection = None;
    }
}
