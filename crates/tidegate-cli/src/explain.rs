//! `tidegate explain`: shows which limit decides a request, and why.

use crate::flags::Format;
use crate::output::{CommandStatus, refuse_unreadable, write_json, write_stderr};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::Engine;
use tidegate_server::explain::{HeaderValues, RequestDescription, explain_description};

/// Show which limit of a configuration decides a request, for which key, and why
///
/// All limits are unused here. For the state of a running server, call /v1/explain at its HTTP address.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Method and path, for example 'GET /login?user=7'
    #[arg(
        long,
        value_name = "REQUEST",
        required_unless_present = "domain",
        conflicts_with = "domain"
    )]
    request: Option<String>,
    /// Address of the client
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// Request header, for example 'x-user: ann'; can be repeated
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Explain an Envoy request instead of an HTTP request: its domain
    #[arg(long, value_name = "DOMAIN", requires = "descriptors", conflicts_with_all = ["ip", "headers"])]
    domain: Option<String>,
    /// Descriptor of the Envoy request, for example 'tenant=acme,path=/v1/x'; can be repeated
    #[arg(long = "descriptor", value_name = "ENTRIES", requires = "domain")]
    descriptors: Vec<String>,
    /// Cost of the request
    #[arg(long, default_value_t = 1)]
    cost: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Explain {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let asked = self.asked()?;
        let config = match config::load(&self.config) {
            Ok(config) => config,
            Err(errors) => {
                refuse_unreadable(&errors)?;
                write_stderr(&errors.to_string());
                return Ok(CommandStatus::Problems);
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
            Format::Json => write_json(&explanation, out)?,
        }
        Ok(CommandStatus::Success)
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
    // A word of capital letters is a method without a path; any other word is a path without a method.
    let is_method = request.bytes().all(|byte| byte.is_ascii_uppercase());
    match request.split_once(' ') {
        Some((method, path)) => Ok((method.to_owned(), path.trim().to_owned())),
        None if request.is_empty() => bail!("the request is empty: write 'GET /'"),
        None if is_method => bail!("`{request}` has no path: write '{request} /'"),
        None => bail!("`{request}` is not a request: write 'GET {request}'"),
    }
}

/// Splits `name: value`. The error does not quote the text, because it may hold a credential.
fn header_of(text: &str) -> anyhow::Result<(String, &str)> {
    let why = "--header has no colon: write 'name: value'";
    let (name, value) = text.split_once(':').context(why)?;
    Ok((name.trim().to_ascii_lowercase(), value.trim()))
}
