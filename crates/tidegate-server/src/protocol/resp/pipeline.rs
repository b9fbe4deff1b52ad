//! Pipelines with a store whose decisions take a round trip: consecutive commands are sent to it at the same time.
//!
//! Invariant Answers come in the order of the commands, and commands about one key are decided in their order: the store sends all
//!           requests about a key over one connection. Commands about several keys, commands whose key only their lease knows, and
//!           resets run only with commands of their own kind: a script that a Redis server does not know yet is sent again, and then
//!           runs after other scripts.
//! Bound     At most [`IN_FLIGHT_MAX`] commands of one client are in flight, and of all clients as many as may wait; the others get
//!           `BUSY`.

use super::command::{Command, Group};
use super::parse::Words;
use super::reply::{Reply, Version};
use super::{throttle, tide};
use crate::server::Server;
use crate::server::Wire;
use std::pin::Pin;
use tidegate::store::ClientId;

/// Maximum number of commands of one client in flight.
const IN_FLIGHT_MAX: usize = 128;
/// Maximum length of a line of an answer.
const LINE_BYTES_MAX: usize = 4 + 5 * 23;

/// Commands that will be sent to the store at the same time.
#[derive(Debug, Default)]
pub(super) struct Pipeline<'a> {
    kind: Option<PipelineKind>,
    commands: Vec<PipelinedCommand<'a>>,
}

/// Commands of one kind may be in flight together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipelineKind {
    OneKey,
    SeveralKeys,
    Lease,
    Reset,
}

/// A command that has been parsed and not sent.
#[derive(Debug)]
struct PipelinedCommand<'a> {
    command: Command,
    bytes: &'a [u8],
    words: Words,
}

impl PipelineKind {
    fn of(command: Command) -> Option<Self> {
        match command {
            Command::TideCheckAll => Some(Self::SeveralKeys),
            Command::TideRelease => Some(Self::Lease),
            Command::TideReset => Some(Self::Reset),
            Command::ClThrottle => Some(Self::OneKey),
            command if command.group() == Group::Tide => Some(Self::OneKey),
            _ => None,
        }
    }
}

/// Returns whether a command may be in flight together with others.
pub(super) fn can_pipeline(command: Command) -> bool {
    PipelineKind::of(command).is_some()
}

impl<'a> Pipeline<'a> {
    /// Returns whether a command can join those in the pipeline; if not, the pipeline has to be finished first.
    pub(super) fn accepts(&self, command: Command) -> bool {
        self.kind == PipelineKind::of(command) && self.commands.len() < IN_FLIGHT_MAX
    }

    /// Adds a command.
    pub(super) fn push(&mut self, command: Command, bytes: &'a [u8], words: Words) {
        self.kind = PipelineKind::of(command);
        self.commands.push(PipelinedCommand { command, bytes, words });
    }

    /// Sends all commands to the store and appends their answers.
    pub(super) async fn finish(&mut self, server: &Server, peer: ClientId, reply: &mut Reply) {
        let (commands, version) = (std::mem::take(&mut self.commands), reply.version);
        let answers = commands.iter().map(|command| answer((server, peer), version, command));
        // Unconstrained: if tokio interrupted the task in the middle, later commands would be sent before earlier ones.
        let answers = tokio::task::unconstrained(futures_util::future::join_all(answers));
        for answer in answers.await {
            reply.append(&answer);
        }
    }

    /// Returns the maximum length of the answers.
    pub(super) fn reply_bytes_max(&self) -> usize {
        let lines = self.commands.iter().map(|command| 1 + command.words.len() / 3);
        lines.sum::<usize>() * LINE_BYTES_MAX
    }
}

fn answer<'a>(
    (server, peer): (&'a Server, ClientId),
    version: Version,
    pipelined: &'a PipelinedCommand<'a>,
) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
    let mut reply = Reply::new(version);
    let PipelinedCommand { command, bytes, words } = pipelined;
    Box::pin(async move {
        // A release frees a permit, so it is never turned away.
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
