//! Pipelines for a store that takes a while: what was asked in a row is under way at the same time.
//!
//! Always   Answers come in the order of the commands, and commands about one key are decided in their order: the
//!          store sends all about a key over one connection. Commands about several keys, those whose key only
//!          their lease knows, and those that forget, are not under way together with others: a script that a
//!          server does not know yet is sent again, and then comes after what another script has done.
//! Always   At most [`IN_FLIGHT_MAX`] of one peer are under way, and of all peers as many as may wait; others hear `BUSY`.

use super::command::Command;
use super::parse::{Words, parse};
use super::reply::{Reply, Version};
use super::session::Session;
use super::{throttle, tide};
use crate::server::Server;
use crate::server::Wire;
use std::pin::Pin;
use tidegate::store::ClientId;

/// So many are under way at once.
const IN_FLIGHT_MAX: usize = 128;
/// No line of an answer is longer.
const LINE_BYTES_MAX: usize = 4 + 5 * 23;

/// Commands that will be under way pipeline.
#[derive(Debug, Default)]
pub(super) struct Pipeline<'a> {
    kind: Option<Kind>,
    asked: Vec<Asked<'a>>,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OneKey,
    SeveralKeys,
    Lease,
    Forget,
}

/// A command that has come, and has not been asked.
#[derive(Debug)]
struct Asked<'a> {
    command: Command,
    bytes: &'a [u8],
    words: Words,
}

impl Kind {
    fn of(command: Command) -> Option<Self> {
        match command {
            Command::TideCheckAll => Some(Self::SeveralKeys),
            Command::TideRelease => Some(Self::Lease),
            Command::TideReset => Some(Self::Forget),
            Command::ClThrottle => Some(Self::OneKey),
            command if command.is_tide() => Some(Self::OneKey),
            _ => None,
        }
    }
}

impl Pipeline<'_> {
    /// How long the answers can become.
    fn reply_bytes(&self) -> usize {
        let lines = self.asked.iter().map(|asked| 1 + asked.words.len() / 3);
        lines.sum::<usize>() * LINE_BYTES_MAX
    }
}

impl Session {
    /// Answers the commands that have come, as [`answer`](Self::answer) does.
    pub(super) async fn answer_pipelined(&mut self, bytes: &[u8]) -> usize {
        let (mut pipeline, mut words) = (Pipeline::default(), Words::default());
        let mut done = 0;
        while !self.is_over && self.reply.len() + pipeline.reply_bytes() < self.output_step() {
            let rest = &bytes[done..];
            match parse(rest, &mut words, self.caps()) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    done += len;
                    if !words.is_empty() {
                        let words = std::mem::take(&mut words);
                        self.take_pipelined(&mut pipeline, rest, words).await;
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

    async fn take_pipelined<'a>(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        bytes: &'a [u8],
        words: Words,
    ) {
        let command = Command::of(words.get(bytes, 0));
        let is_asked_now = self.is_authenticated && self.transaction.is_none();
        if let Some(command) = command.filter(|it| is_asked_now && Self::can_pipeline(*it)) {
            self.pipeline_command(pipeline, command, bytes, words).await;
        } else {
            self.finish_pipeline(pipeline).await;
            self.take_other(command, bytes, &words).await;
        }
    }

    /// Whether a command may be under way together with others.
    pub(super) fn can_pipeline(command: Command) -> bool {
        Kind::of(command).is_some()
    }

    /// Asks, as soon as nothing that follows can be under way with it. The answer comes when it is
    /// [settled](Self::finish_pipeline).
    pub(super) async fn pipeline_command<'a>(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        command: Command,
        bytes: &'a [u8],
        words: Words,
    ) {
        let kind = Kind::of(command);
        if pipeline.kind != kind || pipeline.asked.len() >= IN_FLIGHT_MAX {
            self.finish_pipeline(pipeline).await;
        }
        pipeline.kind = kind;
        pipeline.asked.push(Asked { command, bytes, words });
    }

    /// Asks all of them, and says the answers.
    pub(super) async fn finish_pipeline(&mut self, pipeline: &mut Pipeline<'_>) {
        let asked = std::mem::take(&mut pipeline.asked);
        let (server, peer, version) = (&*self.server, self.peer, self.reply.version);
        let answers = asked.iter().map(|asked| answer((server, peer), version, asked));
        // In their order, which tokio turns round where it makes a task with so many answers take a rest.
        let answers = tokio::task::unconstrained(futures_util::future::join_all(answers));
        for answer in answers.await {
            self.reply.append(&answer);
        }
    }
}

fn answer<'a>(
    (server, peer): (&'a Server, ClientId),
    version: Version,
    asked: &'a Asked<'a>,
) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
    let mut reply = Reply::in_words_of(version);
    let Asked { command, bytes, words } = asked;
    Box::pin(async move {
        // What is given back makes room, for others or in the store.
        let waiting = (*command != Command::TideRelease).then(|| server.wait(Wire::Resp, peer));
        if let Some(Err(busy)) = waiting {
            reply.error(format_args!("BUSY {busy}"));
            return reply;
        }
        match command {
            Command::ClThrottle => throttle::run(server, &mut reply, bytes, words).await,
            command => tide::run(server.engine.by(peer), &mut reply, *command, bytes, words).await,
        }
        reply
    })
}
