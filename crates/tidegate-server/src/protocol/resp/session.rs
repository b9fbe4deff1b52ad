//! The state of one client's session: its authentication, name and transaction, and the answers that have not been sent.

use super::parse::{CommandCaps, ProtocolError, Words};
use super::reply::{Reply, shown};
use super::throttle::ThrottleQueue;
use super::transaction::Transaction;
use super::{OUTPUT_STEP, UNAUTHENTICATED_OUTPUT_STEP};
use crate::config::Token;
use crate::server::Server;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::store::ClientId;

/// A session without a socket: bytes in, bytes out.
#[derive(Debug)]
pub struct Session {
    pub(super) server: Arc<Server>,
    pub(super) reply: Reply,
    /// Whether the client has shown a token, or needs none.
    pub(super) is_authenticated: bool,
    /// The token that the client has shown.
    pub(super) token: Option<Token>,
    /// The client's address; `None` for sessions of this program.
    address: Option<IpAddr>,
    /// The client whose share of bounded resources this session uses.
    pub(super) peer: ClientId,
    /// Generation of the server's tokens at the last authentication.
    pub(super) token_changes: u64,
    pub(super) is_over: bool,
    /// Number of wrong tokens that the client has sent.
    pub(super) wrong_tokens: u32,
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    pub(super) transaction: Option<Transaction>,
    output_bytes_max: usize,
    /// Whether limits are in a store that several servers share, so that decisions take a round trip.
    pub(super) is_shared: bool,
    pub(super) throttle_queue: ThrottleQueue,
    pub(super) words: Words,
}

static SESSIONS: AtomicU64 = AtomicU64::new(1);

impl Session {
    /// Returns a session of this program.
    pub fn new(server: Arc<Server>) -> Self {
        Self::with_address(server, None)
    }

    /// Returns a session of a client with this address.
    pub fn from_address(server: Arc<Server>, address: IpAddr) -> Self {
        let mut session = Self::with_address(server, Some(address));
        session.update_peer();
        session
    }

    /// Finds the client's identity anew, after its token has changed.
    pub(super) fn update_peer(&mut self) {
        if let Some(address) = self.address {
            let token = self.token.as_ref().map(Token::bytes);
            self.peer = self.server.peer(address, token);
        }
    }

    fn with_address(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        // The maximum is for one answer; others may be unsent before it.
        let output_bytes_max = OUTPUT_STEP + server.config().server.caps.output_bytes_max;
        Self {
            throttle_queue: ThrottleQueue::new(&server.engine),
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

    /// Returns the maximum length of the answers to all commands so far.
    pub(super) fn unsent_bytes_max(&self) -> usize {
        self.reply.len() + self.throttle_queue.reply_bytes_max()
    }

    /// Ends the session: after a protocol error the next command cannot be found.
    pub(super) fn close(&mut self, error: ProtocolError) {
        self.reply.error(format_args!("ERR Protocol error: {error}"));
        self.is_over = true;
    }

    /// Returns the answers to send.
    pub fn output(&self) -> &[u8] {
        self.reply.bytes()
    }

    /// Removes the answers after they have been sent.
    pub fn clear_output(&mut self) {
        self.reply.clear();
    }

    /// Returns whether to close the connection.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the length of answers at which they are sent.
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

    /// Returns whether commands run now: the client is authenticated and no transaction queues them.
    pub(super) fn runs_commands(&self) -> bool {
        self.is_authenticated && self.transaction.is_none()
    }

    /// Returns whether the unsent answers are longer than allowed.
    pub(super) fn has_too_much_output(&self) -> bool {
        self.reply.len() > self.output_bytes_max
    }

    /// Appends the error of a command that does not exist.
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
