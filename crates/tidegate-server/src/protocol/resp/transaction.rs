//! `MULTI`, `EXEC` and `DISCARD`, which some clients send around every pipeline.
//!
//! Invariant Queued commands run in order. Commands of other clients may run between them: `TIDE.CHECKALL` is atomic.
//! Bound     The queue of one connection is no longer than one command may be, and all queues together have at most
//!           [`QUEUES_BYTES_MAX`](crate::server::QUEUES_BYTES_MAX), of which each client has a [share](tidegate::store::Shares).

use super::parse::{CommandCaps, Words};
use crate::server::Server;
use std::sync::Arc;
use tidegate::store::ClientId;

/// Commands that wait for `EXEC`.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The commands as arrays, one after another.
    commands: Vec<u8>,
    count: usize,
    bytes: QueuedBytes,
    /// Whether a command was rejected, so that `EXEC` fails.
    is_broken: bool,
}

/// A client's part of the bytes that all queues may have; dropping it releases them.
#[derive(Debug)]
struct QueuedBytes {
    server: Arc<Server>,
    /// The client when the transaction began: its identity may change before the end.
    peer: ClientId,
    bytes: u32,
}

impl QueuedBytes {
    /// Reserves more bytes. Returns `false` if all are taken, or the client has its share.
    fn grow(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let has_grown = self.server.queues.take_n(self.peer, bytes);
        if has_grown {
            self.bytes += bytes;
        }
        has_grown
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.server.queues.give_back_n(self.peer, self.bytes);
    }
}

/// Maximum number of queued commands.
const COMMANDS_MAX: usize = 10_000;

impl Transaction {
    pub(super) fn new(server: &Arc<Server>, peer: ClientId) -> Self {
        let bytes = QueuedBytes { server: Arc::clone(server), peer, bytes: 0 };
        Self { commands: Vec::new(), count: 0, bytes, is_broken: false }
    }

    /// Returns whether a command was rejected.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the number of commands.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the commands as arrays, one after another.
    pub(super) fn commands(&self) -> &[u8] {
        &self.commands
    }

    /// Appends a command, or returns why the queue is full. After a rejected command it appends nothing.
    pub(super) fn push(&mut self, bytes: &[u8], words: &Words) -> Result<(), &'static str> {
        if self.is_broken {
            return Ok(());
        }
        let command = encoded(bytes, words);
        let bytes = self.commands.len() + command.len();
        if bytes > CommandCaps::AUTHENTICATED.command_bytes_max || self.count >= COMMANDS_MAX {
            return Err("ERR too many commands are queued: send EXEC sooner");
        }
        if !self.bytes.grow(command.len()) {
            return Err("BUSY clients have queued too many commands with MULTI: retry later");
        }
        self.commands.extend_from_slice(&command);
        self.count += 1;
        Ok(())
    }

    /// Drops the queue; `EXEC` will fail.
    pub(super) fn discard(&mut self) {
        *self = Self { is_broken: true, ..Self::new(&self.bytes.server, self.bytes.peer) };
    }
}

/// Returns a command as an array of bulk strings.
fn encoded(bytes: &[u8], words: &Words) -> Vec<u8> {
    let mut raw = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.from(bytes, 0) {
        raw.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        raw.extend_from_slice(word);
        raw.extend_from_slice(b"\r\n");
    }
    raw
}
