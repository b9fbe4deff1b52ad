//! `MULTI` and `EXEC`: what several clients wrap every pipeline in.
//!
//! Always   Commands that were put off run in order, one after the other. Others may be decided in between:
//!          requests that must stand or fall together are for `TIDE.CHECKALL`.

use super::command::Command;
use super::parse::{Caps, Words, parse};
use super::session::Session;
use super::together::Together;

/// What was put off.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    commands: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether one of them was none.
    is_broken: bool,
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
        transaction.is_broken |= command.is_none();
        let raw = encoded(bytes, words);
        transaction.bytes += raw.len();
        let is_too_much = transaction.bytes > Caps::KNOWN.command_bytes_max
            || transaction.commands.len() >= COMMANDS_MAX;
        if is_too_much {
            transaction.is_broken = true;
            transaction.commands.clear();
            self.reply.error("ERR too much is put off: EXEC sooner");
        } else if command.is_some() {
            transaction.commands.push(raw);
            self.reply.simple("QUEUED");
        }
    }

    pub(super) async fn transact(&mut self, command: Command, _: &[u8], _: &Words) {
        match (command, self.transaction.take()) {
            (Command::Multi, None) => {
                self.transaction = Some(Transaction::default());
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
        self.reply.array(transaction.commands.len());
        let (mut together, mut words) = (Together::default(), Words::default());
        for raw in &transaction.commands {
            let parsed = parse(raw, &mut words, &Caps::KNOWN);
            debug_assert!(matches!(parsed, Ok(Some(_))), "it was encoded here");
            match Command::of(words.get(raw, 0)) {
                Some(command) if self.is_shared && Self::is_asked_together(command) => {
                    let words = std::mem::take(&mut words);
                    self.ask_together(&mut together, command, raw, words).await;
                }
                Some(command) => {
                    self.settle_together(&mut together).await;
                    // None of them puts off or executes: those end a transaction.
                    Box::pin(self.run(command, raw, &words)).await;
                }
                None => {}
            }
            if self.has_said_too_much() {
                return;
            }
        }
        self.settle_together(&mut together).await;
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
