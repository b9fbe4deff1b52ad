//! `tidegate explain`: which limit would decide a request, and why.

use crate::args::Format;
use crate::output::{Found, complain};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use tidegate::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::Engine;
use tidegate_server::explain::{Asked, explain, hint};

/// Say which limit of a configuration would decide a request, on which key and why
///
/// Nothing has been used yet: what a running server thinks is at its HTTP address, /v1/explain.
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
        let asked = self.asked()?;
        let config = match config::load(&self.config) {
            Ok(config) => config,
            Err(errors) => {
                complain(&errors.to_string());
                return Ok(Found::Wrong);
            }
        };
        let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let proxies = &config.server.trusted_proxies;
        let request = asked.request(proxies);
        let mut explanation = runtime.block_on(explain(&engine, &request, asked.cost))?;
        explanation.hint = hint(asked.ip, &request, proxies);
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

    fn asked(&self) -> anyhow::Result<Asked> {
        let Some((method, path)) = self.request.split_once(' ') else {
            bail!("`{}` is not a request: write 'GET {}'", self.request, self.request);
        };
        let (method, path) = (method.to_owned(), path.trim().to_owned());
        let mut headers = BTreeMap::<String, String>::new();
        for header in &self.headers {
            let (name, value) = header_of(header)?;
            // One that comes more than once is one.
            let said = headers.entry(name).or_default();
            said.push_str(if said.is_empty() { "" } else { ", " });
            said.push_str(value);
        }
        let asked = Asked { method, path, ip: self.ip, headers, cost: self.cost };
        match asked.wrong() {
            Some(wrong) => bail!(wrong),
            None => Ok(asked),
        }
    }
}

fn header_of(text: &str) -> anyhow::Result<(String, &str)> {
    let (name, value) = text
        .split_once(':')
        .with_context(|| format!("`{text}` is not a header: write 'name: value'"))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim()))
}
