//! Runs the commands of a session, in the order in which they arrive.
//!
//! Consecutive `CL.THROTTLE` are queued and decided as one batch. If limits are in a store that several servers share, other
//! commands are sent to it at the same time, as a [pipeline](super::pipeline).

use super::command::{Command, Group, is_http};
use super::parse::{CommandCaps, Words, parse};
use super::pipeline::{Pipeline, can_pipeline};
use super::session::Session;
use super::transaction::Transaction;
use super::{connection, throttle, tide};

impl Session {
    /// Answers complete commands until their answers are long enough to be sent. Returns the length of these commands.
    pub async fn answer(&mut self, bytes: &[u8]) -> usize {
        if self.server.have_tokens_changed(&mut self.token_changes) {
            connection::reauthenticate(self);
        }
        if self.is_shared {
            return Box::pin(self.answer_pipelined(bytes)).await;
        }
        let mut words = std::mem::take(&mut self.words);
        let mut done = 0;
        while !self.is_over && self.unsent_bytes_max() < self.output_step() {
            let rest = &bytes[done..];
            match parse(rest, &mut words, self.caps()) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    done += len;
                    if !words.is_empty() && !self.queue_throttle(rest, &words) {
                        self.decide_queued();
                        self.handle(rest, &words).await;
                    }
                }
                Err(error) => {
                    self.decide_queued();
                    self.close(error);
                }
            }
        }
        self.decide_queued();
        self.words = words;
        done
    }

    /// Adds a `CL.THROTTLE` to the queue; returns `false` for another command.
    #[inline]
    fn queue_throttle(&mut self, bytes: &[u8], words: &Words) -> bool {
        let is_throttle = words.get(bytes, 0).eq_ignore_ascii_case(b"CL.THROTTLE");
        if !is_throttle || !self.runs_commands() {
            return false;
        }
        if let Err(error) = self.throttle_queue.push(bytes, words) {
            self.decide_queued();
            self.reply.error(error);
        }
        if self.throttle_queue.is_full() {
            self.decide_queued();
        }
        true
    }

    /// Decides the queued throttles, whose answers come before any other.
    #[inline]
    fn decide_queued(&mut self) {
        self.throttle_queue.decide(&self.server.engine, &mut self.reply);
    }

    /// Handles a command that is not batched: rejects it, queues it for `EXEC`, or runs it.
    async fn handle(&mut self, bytes: &[u8], words: &Words) {
        let command = Command::named(words.get(bytes, 0));
        // No browser sends arrays: `GET` from a Redis client is an unknown command.
        if bytes.first() != Some(&b'*') && is_http(words.get(bytes, 0)) {
            tracing::warn!("an HTTP request on the RESP port was cut off");
            self.is_over = true;
            return;
        }
        if !self.is_authenticated && !command.is_some_and(Command::is_before_authentication) {
            self.reply.error("NOAUTH Authentication required.");
            return;
        }
        if self.transaction.is_some() && !command.is_some_and(Command::is_never_queued) {
            self.queue(command, bytes, words);
            return;
        }
        let before = self.reply.len();
        match command {
            Some(command) => self.run(command, bytes, words).await,
            None => self.unknown(bytes, words),
        }
        if self.has_too_much_output() {
            self.reply.truncate(before);
            self.reply.error("ERR the answer is too long: request less at once");
            self.is_over = true;
        }
    }

    /// Runs a command that is neither queued nor batched.
    async fn run(&mut self, command: Command, bytes: &[u8], words: &Words) {
        match command.group() {
            Group::Throttle if command == Command::Del => {
                let client = (&*self.server, self.peer);
                throttle::del(client, &mut self.reply, bytes, words).await;
            }
            Group::Throttle => match self.throttle_queue.push(bytes, words) {
                Ok(()) => self.decide_queued(),
                Err(error) => self.reply.error(error),
            },
            Group::Transaction => self.run_transaction_command(command).await,
            Group::Tide => {
                let engine = self.server.engine.by(self.peer);
                tide::run(engine, &mut self.reply, command, bytes, words).await;
            }
            Group::Connection => connection::run(self, command, bytes, words),
        }
    }

    /// Queues a command until `EXEC`.
    fn queue(&mut self, command: Option<Command>, bytes: &[u8], words: &Words) {
        if command.is_none() {
            self.unknown(bytes, words);
        }
        let Some(transaction) = &mut self.transaction else { return };
        if command.is_none() {
            return transaction.discard();
        }
        match transaction.push(bytes, words) {
            Ok(()) => self.reply.simple("QUEUED"),
            Err(why) => {
                transaction.discard();
                self.reply.error(why);
            }
        }
    }

    async fn run_transaction_command(&mut self, command: Command) {
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
            (_, Some(transaction)) if transaction.is_broken() => {
                let message = "EXECABORT Transaction discarded because of previous errors.";
                self.reply.error(message);
            }
            (_, Some(transaction)) => self.execute(transaction).await,
        }
    }

    async fn execute(&mut self, transaction: Transaction) {
        self.reply.array(transaction.len());
        let (mut pipeline, mut words) = (Pipeline::default(), Words::default());
        let mut rest = transaction.commands();
        while let Ok(Some(length)) = parse(rest, &mut words, &CommandCaps::AUTHENTICATED) {
            let raw = &rest[..length];
            rest = &rest[length..];
            match Command::named(words.get(raw, 0)) {
                Some(command) if self.is_shared && can_pipeline(command) => {
                    let words = std::mem::take(&mut words);
                    self.add_to_pipeline(&mut pipeline, command, raw, words).await;
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

    /// Answers complete commands, as [`answer`](Self::answer) does, with several in flight.
    async fn answer_pipelined(&mut self, bytes: &[u8]) -> usize {
        let (mut pipeline, mut words) = (Pipeline::default(), Words::default());
        let mut done = 0;
        while !self.is_over && self.reply.len() + pipeline.reply_bytes_max() < self.output_step() {
            let rest = &bytes[done..];
            match parse(rest, &mut words, self.caps()) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    done += len;
                    if !words.is_empty() {
                        let words = std::mem::take(&mut words);
                        self.handle_pipelined(&mut pipeline, rest, words).await;
                    }
                }
                Err(error) => {
                    self.finish_pipeline(&mut pipeline).await;
                    self.close(error);
                }
            }
        }
        self.finish_pipeline(&mut pipeline).await;
        done
    }

    async fn handle_pipelined<'a>(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        bytes: &'a [u8],
        words: Words,
    ) {
        let command = Command::named(words.get(bytes, 0));
        if let Some(command) = command.filter(|it| self.runs_commands() && can_pipeline(*it)) {
            self.add_to_pipeline(pipeline, command, bytes, words).await;
        } else {
            self.finish_pipeline(pipeline).await;
            self.handle(bytes, &words).await;
        }
    }

    /// Adds a command, after finishing the pipeline if the command cannot be in flight with it.
    async fn add_to_pipeline<'a>(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        command: Command,
        bytes: &'a [u8],
        words: Words,
    ) {
        if !pipeline.accepts(command) {
            self.finish_pipeline(pipeline).await;
        }
        pipeline.push(command, bytes, words);
    }

    async fn finish_pipeline(&mut self, pipeline: &mut Pipeline<'_>) {
        pipeline.finish(&self.server, self.peer, &mut self.reply).await;
    }
}
