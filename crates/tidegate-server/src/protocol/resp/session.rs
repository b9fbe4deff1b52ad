//! One peer: what it has said about itself, and what it has been told.

use super::command::Command;
use super::parse::{CommandCaps, ProtocolError, Words, parse};
use super::reply::Reply;
use super::throttle::Throttling;
use super::transaction::Transaction;
use super::{OUTPUT_STEP, UNAUTHENTICATED_OUTPUT_STEP, client, tide};
use crate::config::Token;
use crate::escape::Escaped;
use crate::server::Server;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::store::ClientId;

/// A conversation, without the socket: bytes in, bytes out.
#[derive(Debug)]
pub struct Session {
    pub(super) server: Arc<Server>,
    pub(super) reply: Reply,
    /// Whether it has shown a token, or needs none.
    pub(super) is_authenticated: bool,
    /// The token that it has shown.
    pub(super) token: Option<Token>,
    /// Where it comes from; nowhere, if it is this program.
    address: Option<IpAddr>,
    /// Whose share it takes from what all share.
    pub(super) peer: ClientId,
    /// How often tokens had changed when it was last looked whether it is known.
    token_changes: u64,
    pub(super) is_over: bool,
    /// How often it has offered a wrong token.
    pub(super) wrong_tokens: u32,
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    pub(super) transaction: Option<Transaction>,
    output_bytes_max: usize,
    /// Whether answers take a while, because limits are in a store that others share.
    pub(super) is_shared: bool,
    throttling: Throttling,
    words: Words,
}

static SESSIONS: AtomicU64 = AtomicU64::new(1);

impl Session {
    /// A peer that is this program.
    pub fn new(server: Arc<Server>) -> Self {
        Self::of(server, None)
    }

    /// A peer that has just come from this address.
    pub fn from_address(server: Arc<Server>, address: IpAddr) -> Self {
        let mut session = Self::of(server, Some(address));
        session.update_peer();
        session
    }

    /// It has shown a token, or goes by none any more.
    pub(super) fn update_peer(&mut self) {
        if let Some(address) = self.address {
            let token = self.token.as_ref().map(Token::bytes);
            self.peer = self.server.peer(address, token);
        }
    }

    fn of(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        let output_bytes_max = server.config().server.caps.output_bytes_max.max(OUTPUT_STEP);
        Self {
            throttling: Throttling::new(&server.engine),
            token_changes: server.token_changes(),
            is_authenticated: server.admits(None),
            token: None,
            address,
            peer: ClientId::OWN,
            is_shared: server.engine.store().shared().is_some(),
            server,
            reply: Reply::default(),
            is_over: false,
            wrong_tokens: 0,
            id: SESSIONS.fetch_add(1, Ordering::Relaxed),
            name: Vec::new(),
            transaction: None,
            output_bytes_max,
            words: Words::default(),
        }
    }

    /// Answers the commands that have come, until the answers are enough to be sent. Tells how many bytes
    /// they had.
    pub async fn answer(&mut self, bytes: &[u8]) -> usize {
        if self.server.have_tokens_changed(&mut self.token_changes) {
            client::reauthenticate(self);
        }
        if self.is_shared {
            return Box::pin(self.answer_pipelined(bytes)).await;
        }
        let mut words = std::mem::take(&mut self.words);
        let mut done = 0;
        while !self.is_over && self.reply.len() + self.throttling.reply_bytes() < self.output_step()
        {
            let rest = &bytes[done..];
            if self.is_authenticated
                && self.transaction.is_none()
                && let Some(len) = self.throttling.ask_alike(rest)
            {
                self.settle_if_full();
                done += len;
                continue;
            }
            match parse(rest, &mut words, self.caps()) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    self.take(rest, &words).await;
                    done += len;
                }
                Err(error) => {
                    self.settle();
                    self.close(error);
                }
            }
        }
        self.settle();
        self.words = words;
        done
    }

    /// Nobody knows where the next command would begin.
    pub(super) fn close(&mut self, error: ProtocolError) {
        self.reply.error(format_args!("ERR Protocol error: {error}"));
        self.is_over = true;
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        self.reply.bytes()
    }

    /// It has been sent.
    pub fn clear_output(&mut self) {
        self.reply.clear();
    }

    /// Whether the peer is to be left.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// So much is answered before it is sent.
    pub(super) fn output_step(&self) -> usize {
        if self.is_authenticated { OUTPUT_STEP } else { UNAUTHENTICATED_OUTPUT_STEP }
    }

    /// Returns the maximum length of a command.
    pub fn command_bytes_max(&self) -> usize {
        self.caps().command_bytes_max
    }

    /// Returns whether the peer has shown a token that is needed.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn caps(&self) -> &'static CommandCaps {
        if self.is_authenticated {
            &CommandCaps::AUTHENTICATED
        } else {
            &CommandCaps::UNAUTHENTICATED
        }
    }

    #[inline]
    async fn take(&mut self, bytes: &[u8], words: &Words) {
        if words.is_empty() {
            return;
        }
        let command = Command::of(words.get(bytes, 0));
        if command == Some(Command::ClThrottle)
            && self.is_authenticated
            && self.transaction.is_none()
        {
            if let Err(error) = self.throttling.ask(bytes, words) {
                self.settle();
                self.reply.error(error);
            }
            self.settle_if_full();
            return;
        }
        self.settle();
        self.take_other(command, bytes, words).await;
    }

    /// Says what has been decided, before anything else is said.
    #[inline]
    fn settle(&mut self) {
        self.throttling.settle(&self.server.engine, &mut self.reply);
    }

    #[inline]
    fn settle_if_full(&mut self) {
        if self.throttling.is_full() {
            self.settle();
        }
    }

    pub(super) async fn take_other(
        &mut self,
        command: Option<Command>,
        bytes: &[u8],
        words: &Words,
    ) {
        // No browser sends arrays; who types GET into redis-cli hears that there is no such command.
        let is_array = bytes.first() == Some(&b'*');
        let command = command.filter(|command| *command != Command::Http || !is_array);
        if command == Some(Command::Http) {
            // A browser was talked into sending us commands in a request's body (T53).
            tracing::warn!("an HTTP request on the RESP port was cut off");
            self.is_over = true;
            return;
        }
        if !self.is_authenticated && !command.is_some_and(Command::is_before_authentication) {
            self.reply.error("NOAUTH Authentication required.");
            return;
        }
        if self.transaction.is_some() && !command.is_some_and(Command::ends_transaction) {
            self.put_off(command, bytes, words);
            return;
        }
        let before = self.reply.len();
        match command {
            Some(command) => self.run(command, bytes, words).await,
            None => self.unknown(bytes, words),
        }
        if self.has_too_much_output() {
            self.reply.truncate(before);
            self.reply.error("ERR the answer is too long: ask for less at once");
            self.is_over = true;
        }
    }

    /// Whether more has been said than a peer may leave unread.
    pub(super) fn has_too_much_output(&self) -> bool {
        self.reply.len() > self.output_bytes_max
    }

    /// Runs a command that is not put off and not batched.
    pub(super) async fn run(&mut self, command: Command, bytes: &[u8], words: &Words) {
        match command {
            Command::ClThrottle => match self.throttling.ask(bytes, words) {
                Ok(()) => self.settle(),
                Err(error) => self.reply.error(error),
            },
            Command::Multi | Command::Exec | Command::Discard => {
                self.transact(command, bytes, words).await;
            }
            Command::Del if command.takes(words.len()) => client::del(self, bytes, words).await,
            _ if command.is_tide() => {
                let engine = self.server.engine.by(self.peer);
                tide::run(engine, &mut self.reply, command, bytes, words).await;
            }
            _ => client::run(self, command, bytes, words),
        }
    }

    pub(super) fn unknown(&mut self, bytes: &[u8], words: &Words) {
        let args: Vec<String> =
            words.from(bytes, 1).take(8).map(|word| format!("'{}' ", shown(word))).collect();
        self.reply.error(format_args!(
            "ERR unknown command '{}', with args beginning with: {}",
            shown(words.get(bytes, 0)),
            args.concat()
        ));
    }
}

/// As much of a peer's word as is worth repeating.
pub(super) fn shown(word: &[u8]) -> String {
    Escaped::new(&word[..word.len().min(128)]).to_string()
}
