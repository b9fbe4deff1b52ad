//! `tidegate bench`: load for a server, and how long its answers take.
//!
//! ```text
//! target      where, and over which wire
//! question    what is asked, as bytes with room for a key
//! connect     a connection there, with or without TLS
//! schedule    when each request is due, on which connection
//! load        threads, the pacer that wakes connections, and the end
//!   stream    a connection of RESP or HTTP; what is read on it is in wire/
//!   grpc      a connection of gRPC
//! tally       what is counted
//! report      what is printed
//! ```
//!
//! Always   With a rate, the time of an answer counts from when its request was due, not from when it was sent. A
//!          server that stalls for a second is seen by every request of that second, and not by one a connection.

mod connect;
mod grpc;
mod load;
mod question;
mod report;
mod schedule;
mod stream;
mod tally;
mod target;
mod template;
mod wire;

use crate::args::Format;
use crate::output::Found;
use anyhow::ensure;
use connect::{Tls, TlsFlags};
use question::Question;
use schedule::Rate;
use std::io::Write;
use std::time::Duration;
use target::Target;
use tidegate::{RuleError, Span};

/// Every connection is a descriptor here and one there.
const CONNECTIONS_MAX: usize = 10_000;
const PIPELINE_MAX: usize = 10_000;
const DURATION_MAX: Span = Span::from_secs(86_400);
const TIMEOUT_MAX: Span = Span::from_secs(3_600);
/// So many digits has the name of a key.
const KEYS_MAX: u64 = 1_000_000_000_000;

/// Send load to a server, and show how long its answers take
///
/// Requests are sent when they are due, whether or not the server has answered those before (open loop), and the
/// time of an answer counts from then. One question is asked before, and not counted. Exits with 0 if there were
/// answers, 1 if every one failed or there was none, and 2 if it could not begin.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// [resp://]HOST:PORT, http://HOST:PORT[/PATH] or grpc://HOST:PORT; with TLS rediss://, https:// or grpcs://
    #[arg(default_value = "127.0.0.1:6380")]
    target: String,
    /// Requests a second over all connections, or `max`: each as soon as an answer has come (closed loop)
    #[arg(long, default_value = "1000", value_name = "N|max")]
    rate: Rate,
    /// How long, such as 30s or 5min; a number alone is seconds
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = up_to(DURATION_MAX))]
    duration: Duration,
    /// Connections
    #[arg(long, short, default_value = "50", value_name = "N")]
    connections: usize,
    /// The most that a connection may have unanswered
    #[arg(long, short, default_value = "1", value_name = "N")]
    pipeline: usize,
    /// Keys, of which each request has a random one: key:000000000000 and so on
    #[arg(long, short, default_value = "10000", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Ask about this limit, by its name
    #[arg(long, value_name = "NAME", conflicts_with = "rule")]
    limit: Option<String>,
    /// Ask about this rule, by its text
    #[arg(long, value_name = "TEXT")]
    rule: Option<String>,
    /// RESP: send this command, with `{key}` in it [default: CL.THROTTLE {key} 15 30 60]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["limit", "rule"])]
    command: Option<String>,
    /// HTTP: send this body, with `{key}` in it [default: {"rule":"100/s","key":"{key}"}]
    #[arg(long, value_name = "JSON", conflicts_with_all = ["limit", "rule"])]
    body: Option<String>,
    /// gRPC: the domain of the descriptors
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// gRPC: an entry of the descriptor, `{key}` stands for the key; several make one descriptor
    #[arg(long, value_name = "KEY=VALUE")]
    descriptor: Vec<String>,
    /// The server's token
    #[arg(long, env = "TIDEGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long to wait for an answer before it begins, and for the last ones when all are sent
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = up_to(TIMEOUT_MAX))]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFlags,
    /// Threads [default: one a core, and no more than connections]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        let plan = self.plan()?;
        let measured = load::run(&plan)?;
        report::write(&plan, &measured, self.format, out)?;
        let is_any_good = measured.tally.answered > measured.tally.refused;
        Ok(if is_any_good { Found::Fine } else { Found::Wrong })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let bounds = [
            ("--connections", self.connections, CONNECTIONS_MAX),
            ("--pipeline", self.pipeline, PIPELINE_MAX),
            ("--threads", self.threads.unwrap_or(1), CONNECTIONS_MAX),
        ];
        for (flag, value, max) in bounds {
            ensure!((1..=max).contains(&value), "{flag} is {value}, and must be 1 to {max}");
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Not read by clap, which repeats what it cannot read, passwords included.
        let target = Target::read(&self.target)?;
        Ok(Plan {
            question: Question::new(&target, &self.words())?,
            tls: self.tls.for_target(&target)?,
            target,
            rate: self.rate,
            duration: self.duration,
            connections: self.connections,
            pipeline: self.pipeline,
            keys: self.keys,
            patience: self.timeout,
            threads: self.threads.unwrap_or(cores).min(self.connections),
        })
    }

    fn words(&self) -> question::Words<'_> {
        question::Words {
            limit: self.limit.as_deref(),
            rule: self.rule.as_deref(),
            command: self.command.as_deref(),
            body: self.body.as_deref(),
            domain: self.domain.as_deref(),
            descriptor: &self.descriptor,
            token: self.token.as_deref(),
        }
    }
}

/// Reads a time from a millisecond on, which is seconds if it has no unit.
fn up_to(most: Span) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let text = if is_number { format!("{text}s") } else { text.to_owned() };
        let span: Span = text.parse().map_err(|error: RuleError| error.message())?;
        if (Span::from_millis(1)..=most).contains(&span) {
            return Ok(Duration::from_micros(span.as_micros()));
        }
        Err(format!("it must be from 1ms to {most}"))
    }
}

/// What is to be done, checked.
#[derive(Clone, Debug)]
struct Plan {
    target: Target,
    tls: Option<Tls>,
    question: Question,
    rate: Rate,
    duration: Duration,
    connections: usize,
    pipeline: usize,
    keys: u64,
    patience: Duration,
    threads: usize,
}
