//! `tidegate explain`: which limit would decide a request, and why.

use crate::args::Format;
use crate::output::{Found, complain, refuse_unreadable};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use tidegate::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::Engine;
use tidegate_server::explain::{HeaderValues, RequestDescription, explain_description};

/// Say which limit of a configuration would decide a request, on which key and why
///
/// Nothing has been used yet: what a running server thinks is at its HTTP address, /v1/explain.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Method and path, such as 'GET /login?user=7'
    #[arg(
        long,
        value_name = "REQUEST",
        required_unless_present = "domain",
        conflicts_with = "domain"
    )]
    request: Option<String>,
    /// Who asks
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// A header, such as 'x-user: ann'; may be repeated
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Instead of a request of HTTP, one of Envoy's: its domain
    #[arg(long, value_name = "DOMAIN", requires = "descriptors", conflicts_with_all = ["ip", "headers"])]
    domain: Option<String>,
    /// Its descriptor, such as 'tenant=acme,path=/v1/x'; may be repeated
    #[arg(long = "descriptor", value_name = "ENTRIES", requires = "domain")]
    descriptors: Vec<String>,
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
                refuse_unreadable(&errors)?;
                complain(&errors.to_string());
                return Ok(Found::Wrong);
            }
        };
        let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let explanation = runtime.block_on(explain_description(&engine, &asked, &config.server));
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

    fn asked(&self) -> anyhow::Result<RequestDescription> {
        let asked = match &self.request {
            Some(request) => self.asked_of_http(request)?,
            None => self.asked_of_envoy(),
        };
        match asked.wrong() {
            Some(wrong) => bail!(wrong),
            None => Ok(asked),
        }
    }

    fn asked_of_envoy(&self) -> RequestDescription {
        let entries =
            |text: &String| text.split(',').map(|entry| entry.trim().to_owned()).collect();
        let descriptors = self.descriptors.iter().map(entries).collect();
        RequestDescription {
            domain: self.domain.clone(),
            descriptors,
            cost: self.cost,
            ..RequestDescription::default()
        }
    }

    fn asked_of_http(&self, request: &str) -> anyhow::Result<RequestDescription> {
        let (method, path) = method_and_path(request)?;
        let mut headers = BTreeMap::<String, HeaderValues>::new();
        for header in &self.headers {
            let (name, value) = header_of(header)?;
            headers.entry(name).or_default().0.push(value.to_owned());
        }
        let (ip, cost) = (self.ip, self.cost);
        Ok(RequestDescription { method, path, ip, headers, cost, ..RequestDescription::default() })
    }
}

fn method_and_path(request: &str) -> anyhow::Result<(String, String)> {
    let request = request.trim();
    // A path is never only capitals, and a method usually is.
    let is_method = request.bytes().all(|byte| byte.is_ascii_uppercase());
    match request.split_once(' ') {
        Some((method, path)) => Ok((method.to_owned(), path.trim().to_owned())),
        None if request.is_empty() => bail!("the request is empty: write 'GET /'"),
        None if is_method => bail!("`{request}` has no path: write '{request} /'"),
        None => bail!("`{request}` is not a request: write 'GET {request}'"),
    }
}

/// A text that is not a header may hold a credential, so the error does not repeat it.
fn header_of(text: &str) -> anyhow::Result<(String, &str)> {
    let why = "--header has no colon between a name and a value: write 'name: value'";
    let (name, value) = text.split_once(':').context(why)?;
    Ok((name.trim().to_ascii_lowercase(), value.trim()))
}
