//! `tidegate explain`: which limit would decide a request, and why.

use crate::args::Format;
use crate::output::{Found, complain};
use anyhow::{Context, bail};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use tidegate::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::Engine;
use tidegate_server::explain::explain;
use tidegate_server::matching::Request;

/// Say which limit of a configuration would decide a request, on which key and why
///
/// Nothing has been used yet: what a running server thinks is at its admin address, /v1/explain.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Method and path, such as 'GET /login?user=7'
    #[arg(long, value_name = "REQUEST")]
    request: String,
    /// Who asks
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// A header, such as 'x-user: ann'; may be repeated
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// What the request costs
    #[arg(long, default_value_t = 1)]
    cost: u64,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Explain {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        let headers = self.headers.iter().map(|header| header_of(header));
        let headers: Vec<(String, &str)> = headers.collect::<anyhow::Result<_>>()?;
        let request = self.request(&headers)?;
        let config = match config::load(&self.config) {
            Ok(config) => config,
            Err(errors) => {
                complain(&errors.to_string());
                return Ok(Found::Wrong);
            }
        };
        let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let explanation = runtime.block_on(explain(&engine, &request, self.cost))?;
        match self.format {
            Format::Text => writeln!(out, "{explanation}")?,
            Format::Short => {
                let by = explanation.decided_by.as_deref().unwrap_or("-");
                writeln!(out, "{} {by}", explanation.verdict)?;
            }
            Format::Json => {
                let json = serde_json::to_string_pretty(&explanation).context("this is JSON")?;
                writeln!(out, "{json}")?;
            }
        }
        Ok(Found::Fine)
    }

    fn request<'a>(&'a self, headers: &'a [(String, &'a str)]) -> anyhow::Result<Request<'a>> {
        let Some((method, target)) = self.request.split_once(' ') else {
            bail!("`{}` is not a request: write 'GET {}'", self.request, self.request);
        };
        let target = target.trim();
        if !target.starts_with('/') {
            bail!("`{target}` is not a path: paths begin with `/`");
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let host = headers.iter().find(|(name, _)| name == "host").map(|(_, host)| bare(host));
        Ok(Request {
            ip: self.ip,
            method: Some(method),
            host,
            path: Some(path),
            query,
            headers: headers.iter().map(|(name, value)| (&name[..], value.as_bytes())).collect(),
        })
    }
}

fn header_of(text: &str) -> anyhow::Result<(String, &str)> {
    let (name, value) = text
        .split_once(':')
        .with_context(|| format!("`{text}` is not a header: write 'name: value'"))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim()))
}

/// A host without its port.
fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host,
    }
}
