//! `MULTI` and `EXEC`: what several clients wrap every pipeline in.
//!
//! Always   Commands that were put off run in order, one after the other. Others may be decided in between:
//!          requests that must stand or fall together are for `TIDE.CHECKALL`.
//! Bound    What one connection has queued is no longer than one command may be, and what all of them have, than
//!          [`QUEUES_BYTES_MAX`](crate::server::QUEUES_BYTES_MAX), of which each peer has a [share](tidegate::store::Shares).

use super::command::Command;
use super::parse::{CommandCaps, Words, parse};
use super::pipeline::Pipeline;
use super::session::Session;
use crate::server::Server;
use std::sync::Arc;
use tidegate::store::ClientId;

/// What was put off.
#[derive(Debug)]
pub(super) struct Transaction {
    /// One after the other, as they are parsed.
    commands: Vec<u8>,
    count: usize,
    /// The room that they take.
    room: QueueRoom,
    /// Whether one of them was none.
    is_broken: bool,
}

/// Room that a peer takes for queued commands; given back when it is dropped.
#[derive(Debug)]
struct QueueRoom {
    server: Arc<Server>,
    /// As it was when the transaction began: who it is may change before it ends.
    peer: ClientId,
    bytes: u32,
}

impl QueueRoom {
    /// Takes room for so many bytes more. `false` if there is none, or the peer has its share.
    fn grow(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let has_grown = self.server.queues.take_n(self.peer, bytes);
        if has_grown {
            self.bytes += bytes;
        }
        has_grown
    }
}

impl Drop for QueueRoom {
    fn drop(&mut self) {
        self.server.queues.give_back_n(self.peer, self.bytes);
    }
}

/// So much can be put off.
const COMMANDS_MAX: usize = 10_000;

impl Session {
    /// Puts a command off until `EXEC`.
    pub(super) fn put_off(&mut self, command: Option<Command>, bytes: &[u8], words: &Words) {
        if command.is_none() {
            self.unknown(bytes, words);
        }
        let Some(transaction) = &mut self.transaction else { return };
        if command.is_none() {
            return transaction.discard();
        }
        match transaction.queue(&encoded(bytes, words)) {
            Ok(()) => self.reply.simple("QUEUED"),
            Err(why) => {
                transaction.discard();
                self.reply.error(why);
            }
        }
    }

    pub(super) async fn transact(&mut self, command: Command, _: &[u8], _: &Words) {
        match (command, self.transaction.take()) {
            (Command::Multi, None) => {
                self.transaction = Some(Transaction::of(&self.server, self.peer));
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
            match Command::of(words.get(raw, 0)) {
                Some(command) if self.is_shared && Self::can_pipeline(command) => {
                    let words = std::mem::take(&mut words);
                    self.pipeline_command(&mut pipeline, command, raw, words).await;
                }
                Some(command) => {
                    self.finish_pipeline(&mut pipeline).await;
                    // None of them puts off or executes: those end a transaction.
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
    /// The transaction of a peer that has just begun it.
    fn of(server: &Arc<Server>, peer: ClientId) -> Self {
        let room = QueueRoom { server: Arc::clone(server), peer, bytes: 0 };
        Self { commands: Vec::new(), count: 0, room, is_broken: false }
    }

    /// Puts a command behind the others, or says why there is no room for it.
    fn queue(&mut self, command: &[u8]) -> Result<(), &'static str> {
        if self.is_broken {
            return Ok(());
        }
        let bytes = self.commands.len() + command.len();
        if bytes > CommandCaps::AUTHENTICATED.command_bytes_max || self.count >= COMMANDS_MAX {
            return Err("ERR too much is put off: EXEC sooner");
        }
        if !self.room.grow(command.len()) {
            return Err("BUSY clients have queued too much by MULTI: ask again later");
        }
        self.commands.extend_from_slice(command);
        self.count += 1;
        Ok(())
    }

    /// Keeps nothing of it but that it cannot be executed.
    fn discard(&mut self) {
        *self = Self { is_broken: true, ..Self::of(&self.room.server, self.room.peer) };
    }
}

fn encoded(bytes: &[u8], words: &Words) -> Vec<u8> {
    let mut raw = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.from(bytes, 0) {
        raw.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        raw.extend_from_slice(word);
        raw.extend_from_slice(b"\r\n");
    }
    raw
}
