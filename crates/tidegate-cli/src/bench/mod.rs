//! `tidegate bench`: sends load to a server and measures its latency.
//!
//! ```text
//! target      the server and the protocol
//! request     the request to send, with a marker for the key (template)
//! connect     opens a connection, with or without TLS
//! schedule    when each request is due, and on which connection
//! load        starts the threads and the pacer, and ends the run
//!   handle    what a connection shares with its pacer and the run
//!   stream    a RESP or HTTP connection; wire/ parses the replies
//!   grpc      a gRPC connection
//! stats       counters and histograms
//! report      prints the result
//! ```
//!
//! Always   At a fixed rate, latency counts from the time when a request was due, not from when it was sent. A
//!          server that stalls for a second therefore shows in every request of that second, and not only in one
//!          per connection (coordinated omission).

mod connect;
mod grpc;
mod handle;
mod load;
mod report;
mod request;
mod schedule;
mod stats;
mod stream;
mod target;
mod template;
mod wire;

use crate::flags::Format;
use crate::output::CommandStatus;
use anyhow::ensure;
use connect::{Tls, TlsFlags};
use request::BenchRequest;
use schedule::Rate;
use std::io::Write;
use std::time::Duration;
use target::Target;
use tidegate::{RuleError, Span};

/// Each connection needs a file descriptor on both machines.
const CONNECTIONS_MAX: usize = 10_000;
const PIPELINE_MAX: usize = 10_000;
const DURATION_MAX: Span = Span::from_secs(86_400);
const TIMEOUT_MAX: Span = Span::from_secs(3_600);
/// Key names have twelve digits.
const KEYS_MAX: u64 = 1_000_000_000_000;

/// Send load to a server, and measure its latency
///
/// Requests are sent when they are due, whether or not the server has answered earlier ones (open loop), and latency
/// counts from the time when a request was due. One test request is sent first and not counted. Exits with 0 if at
/// least one request succeeded, 1 if none did, and 2 if the load could not start.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// [resp://]HOST:PORT, http://HOST:PORT[/PATH] or grpc://HOST:PORT; with TLS rediss://, https:// or grpcs://
    #[arg(default_value = "127.0.0.1:6380")]
    target: String,
    /// Requests per second over all connections, or `max` to send the next request after each reply (closed loop)
    #[arg(long, default_value = "1000", value_name = "N|max")]
    rate: Rate,
    /// Duration, for example 30s or 5min; a number without a unit is in seconds
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = up_to(DURATION_MAX))]
    duration: Duration,
    /// Number of connections
    #[arg(long, short, default_value = "50", value_name = "N")]
    connections: usize,
    /// Maximum number of unanswered requests per connection
    #[arg(long, short, default_value = "1", value_name = "N")]
    pipeline: usize,
    /// Number of keys; each request uses a random one of key:000000000000, key:000000000001 and so on
    #[arg(long, short, default_value = "10000", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Check this limit, by name
    #[arg(long, value_name = "NAME", conflicts_with = "rule")]
    limit: Option<String>,
    /// Check this rule, for example '10/s burst 20'
    #[arg(long, value_name = "TEXT")]
    rule: Option<String>,
    /// RESP: command to send, where `{key}` stands for the key [default: CL.THROTTLE {key} 15 30 60]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["limit", "rule"])]
    command: Option<String>,
    /// HTTP: body to send, where `{key}` stands for the key [default: {"rule":"100/s","key":"{key}"}]
    #[arg(long, value_name = "JSON", conflicts_with_all = ["limit", "rule"])]
    body: Option<String>,
    /// gRPC: domain of the descriptor
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// gRPC: entry of the descriptor, where `{key}` stands for the key; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    descriptor: Vec<String>,
    /// Access token for the server
    #[arg(long, env = "TIDEGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Longest time to wait for the test request, and for the last replies at the end
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = up_to(TIMEOUT_MAX))]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFlags,
    /// Number of threads [default: one per core, at most one per connection]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let plan = self.plan()?;
        let measured = load::run(&plan)?;
        report::write(&plan, &measured, self.format, out)?;
        let is_any_good = measured.stats.answered > measured.stats.errors;
        Ok(if is_any_good { CommandStatus::Success } else { CommandStatus::Problems })
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
        // Not parsed by clap, which would quote an invalid value, including a password in it.
        let target = Target::read(&self.target)?;
        Ok(Plan {
            request: BenchRequest::new(&target, &self.request_flags())?,
            tls: self.tls.for_target(&target)?,
            target,
            rate: self.rate,
            duration: self.duration,
            connections: self.connections,
            pipeline: self.pipeline,
            keys: self.keys,
            timeout: self.timeout,
            threads: self.threads.unwrap_or(cores).min(self.connections),
        })
    }

    fn request_flags(&self) -> request::RequestFlags<'_> {
        request::RequestFlags {
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

/// Parses a duration from 1 ms to `most`; a number without a unit is in seconds.
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

/// The validated flags.
#[derive(Clone, Debug)]
struct Plan {
    target: Target,
    tls: Option<Tls>,
    request: BenchRequest,
    rate: Rate,
    duration: Duration,
    connections: usize,
    pipeline: usize,
    keys: u64,
    timeout: Duration,
    threads: usize,
}
