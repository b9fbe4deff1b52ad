//! Pipelines with a store whose decisions take a round trip: consecutive commands are sent to it at the same time.
//!
//! Invariant Answers come in the order of the commands, and commands about one key are decided in their order: the store sends all
//!           requests about a key over one connection. Commands about several keys, commands whose key only their lease knows, and
//!           resets run only with commands of their own kind: a script that a Redis server does not know yet is sent again, and then
//!           runs after other scripts.
//! Bound     At most [`IN_FLIGHT_MAX`] commands of one client are in flight, and of all clients as many as may wait; the others get
//!           `BUSY`.

use super::command::{Command, Group};
use super::parse::{Words, parse};
use super::reply::{Reply, Version};
use super::session::Session;
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

impl Pipeline<'_> {
    /// Returns the maximum length of the answers.
    fn reply_bytes_max(&self) -> usize {
        let lines = self.commands.iter().map(|command| 1 + command.words.len() / 3);
        lines.sum::<usize>() * LINE_BYTES_MAX
    }
}

impl Session {
    /// Answers complete commands, as [`answer`](Self::answer) does.
    pub(super) async fn answer_pipelined(&mut self, bytes: &[u8]) -> usize {
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
        let can_pipeline = |it: &Command| self.runs_commands() && Self::can_pipeline(*it);
        if let Some(command) = command.filter(can_pipeline) {
            self.pipeline_command(pipeline, command, bytes, words).await;
        } else {
            self.finish_pipeline(pipeline).await;
            self.handle(bytes, &words).await;
        }
    }

    /// Returns whether a command may be in flight together with others.
    pub(super) fn can_pipeline(command: Command) -> bool {
        PipelineKind::of(command).is_some()
    }

    /// Adds a command, after finishing the pipeline if the command cannot be in flight with it.
    pub(super) async fn pipeline_command<'a>(
        &mut self,
        pipeline: &mut Pipeline<'a>,
        command: Command,
        bytes: &'a [u8],
        words: Words,
    ) {
        let kind = PipelineKind::of(command);
        if pipeline.kind != kind || pipeline.commands.len() >= IN_FLIGHT_MAX {
            self.finish_pipeline(pipeline).await;
        }
        pipeline.kind = kind;
        pipeline.commands.push(PipelinedCommand { command, bytes, words });
    }

    /// Sends all commands to the store and appends their answers.
    pub(super) async fn finish_pipeline(&mut self, pipeline: &mut Pipeline<'_>) {
        let commands = std::mem::take(&mut pipeline.commands);
        let (server, peer, version) = (&*self.server, self.peer, self.reply.version);
        let answers = commands.iter().map(|command| answer((server, peer), version, command));
        // Unconstrained: if tokio interrupted the task in the middle, later commands would be sent before earlier ones.
        let answers = tokio::task::unconstrained(futures_util::future::join_all(answers));
        for answer in answers.await {
            self.reply.append(&answer);
        }
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
