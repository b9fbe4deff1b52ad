//! `MULTI`, `EXEC` and `DISCARD`, which some clients send around every pipeline.
//!
//! Invariant Queued commands run in order. Commands of other clients may run between them: `TIDE.CHECKALL` is atomic.
//! Bound     The queue of one connection is no longer than one command may be, and all queues together have at most
//!           [`QUEUES_BYTES_MAX`](crate::server::QUEUES_BYTES_MAX), of which each client has a [share](tidegate::store::Shares).

use super::command::Command;
use super::parse::{CommandCaps, Words, parse};
use super::pipeline::Pipeline;
use super::session::Session;
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

impl Session {
    /// Queues a command until `EXEC`.
    pub(super) fn queue(&mut self, command: Option<Command>, bytes: &[u8], words: &Words) {
        if command.is_none() {
            self.unknown(bytes, words);
        }
        let Some(transaction) = &mut self.transaction else { return };
        if command.is_none() {
            return transaction.discard();
        }
        match transaction.push(&encoded(bytes, words)) {
            Ok(()) => self.reply.simple("QUEUED"),
            Err(why) => {
                transaction.discard();
                self.reply.error(why);
            }
        }
    }

    pub(super) async fn run_transaction_command(&mut self, command: Command) {
        match (command, self.transaction.take()) {
            (Command::Multi, None) => {
                self.transaction = Some(Transaction::new(&self.server, self.peer));
                self.reply.ok();
            }
            (Command::Multi, open) => {
                self.transaction = open;
                self.reply.error("ERR MULTI calls can not be nested");
            }
            (Command::Discard, Some(_)) => self.reply.ok(),
            (Command::Discard, None) => self.reply.error("ERR DISCARD without MULTI"),
            (_, None) => self.reply.error("ERR EXEC without MULTI"),
            (_, Some(transaction)) if transaction.is_broken => {
                let message = "EXECABORT Transaction discarded because of previous errors.";
                self.reply.error(message);
            }
            (_, Some(transaction)) => self.execute(transaction).await,
        }
    }

    async fn execute(&mut self, transaction: Transaction) {
        self.reply.array(transaction.count);
        let (mut pipeline, mut words) = (Pipeline::default(), Words::default());
        let mut rest = &*transaction.commands;
        while let Ok(Some(length)) = parse(rest, &mut words, &CommandCaps::AUTHENTICATED) {
            let raw = &rest[..length];
            rest = &rest[length..];
            match Command::named(words.get(raw, 0)) {
                Some(command) if self.is_shared && Self::can_pipeline(command) => {
                    let words = std::mem::take(&mut words);
                    self.pipeline_command(&mut pipeline, command, raw, words).await;
                }
                Some(command) => {
                    self.finish_pipeline(&mut pipeline).await;
                    // Commands that change the transaction are never queued, so this does not recurse further.
                    Box::pin(self.run(command, raw, &words)).await;
                }
                None => {}
            }
            if self.has_too_much_output() {
                return;
            }
        }
        self.finish_pipeline(&mut pipeline).await;
    }
}

impl Transaction {
    fn new(server: &Arc<Server>, peer: ClientId) -> Self {
        let bytes = QueuedBytes { server: Arc::clone(server), peer, bytes: 0 };
        Self { commands: Vec::new(), count: 0, bytes, is_broken: false }
    }

    /// Appends a command, or returns why the queue is full.
    fn push(&mut self, command: &[u8]) -> Result<(), &'static str> {
        if self.is_broken {
            return Ok(());
        }
        let bytes = self.commands.len() + command.len();
        if bytes > CommandCaps::AUTHENTICATED.command_bytes_max || self.count >= COMMANDS_MAX {
            return Err("ERR too many commands are queued: send EXEC sooner");
        }
        if !self.bytes.grow(command.len()) {
            return Err("BUSY clients have queued too many commands with MULTI: retry later");
        }
        self.commands.extend_from_slice(command);
        self.count += 1;
        Ok(())
    }

    /// Drops the queue; `EXEC` will fail.
    fn discard(&mut self) {
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
