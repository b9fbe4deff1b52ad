//! `tidegate check`: whether a configuration is good, and what it means.

mod store;

use crate::args::{Format, ServerFlags};
use crate::output::{Found, complain, refuse_unreadable};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use tidegate::Clock;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{self, Config, ConfigErrors, LimitConfig, Mode};

/// Say whether a configuration is good, and what each of its limits means
///
/// It is good if `tidegate serve --config FILE`, with the same flags, would go on to bind its sockets: certificates and
/// keys are read, too. Exits with 0 if it is good, 1 if it is not or the store is not as it should be, and 2 if it cannot be
/// read.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The configuration
    file: PathBuf,
    /// Go to the store that it names, and say how it is: whether it answers, throws keys away, lets us do what we must
    #[arg(long)]
    connect: bool,
    /// How to print it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten, next_help_heading = "As it will be served")]
    server: ServerFlags,
}

/// A limit as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    limit: String,
    rule: String,
    means: String,
    key: Vec<String>,
    when: Vec<String>,
    mode: &'static str,
    descriptor: Option<String>,
    /// What is no error, and may surprise.
    notes: Vec<String>,
}

/// An error as programs read it.
#[derive(Debug, Serialize)]
struct ShownError<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Check {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        match config::for_start(Some(&self.file), &self.server.command_line()) {
            Ok(config) => self.show(&config, out),
            Err(errors) => {
                refuse_unreadable(&errors)?;
                self.show_errors(&errors, out)
            }
        }
    }

    fn show(&self, config: &Config, out: &mut impl Write) -> anyhow::Result<Found> {
        let limits: Vec<Shown> = config.limits.iter().map(shown).collect();
        let store = if self.connect { Some(store::look(config)?) } else { None };
        let warnings = config.warnings_at(ServerClock::system().calendar_now());
        match self.format {
            Format::Text => write_text(&limits, out)?,
            Format::Short => {
                for Shown { limit, rule, means, notes, .. } in &limits {
                    writeln!(out, "{limit}: {rule}: {means}")?;
                    for note in notes {
                        writeln!(out, "{limit}: note: {note}")?;
                    }
                }
            }
            Format::Json => {
                let warnings: Vec<ShownError<'_>> = warnings.iter().map(shown_error).collect();
                let mut all = serde_json::json!({ "limits": limits, "warnings": warnings });
                if let Some(store) = &store {
                    all["store"] = serde_json::json!(store);
                }
                write_json(&all, out)?;
            }
        }
        if self.format != Format::Json {
            for warning in &warnings {
                complain(&format!("warning: {warning}"));
            }
        }
        let Some(store) = store else { return Ok(Found::Fine) };
        if self.format != Format::Json {
            store.write(out)?;
        }
        Ok(if store.is_good() { Found::Fine } else { Found::Wrong })
    }

    fn show_errors(&self, errors: &ConfigErrors, out: &mut impl Write) -> anyhow::Result<Found> {
        match self.format {
            Format::Text => complain(&errors.to_string()),
            Format::Short => {
                for error in &errors.errors {
                    let bare = config::ConfigError { excerpt: None, hint: None, ..error.clone() };
                    complain(&bare.to_string());
                }
            }
            Format::Json => {
                let errors: Vec<ShownError<'_>> = errors.errors.iter().map(shown_error).collect();
                write_json(&serde_json::json!({ "errors": errors }), out)?;
            }
        }
        Ok(Found::Wrong)
    }
}

fn shown(limit: &LimitConfig) -> Shown {
    let descriptor = limit.descriptor.as_ref().map(|descriptor| {
        let entries: Vec<String> = descriptor.entries.iter().map(ToString::to_string).collect();
        format!("{}: {}", descriptor.domain, entries.join(", "))
    });
    Shown {
        limit: limit.name.clone(),
        rule: limit.rule.to_string(),
        means: config::means(&limit.rule),
        key: limit.key.iter().map(ToString::to_string).collect(),
        when: limit.when.iter().map(ToString::to_string).collect(),
        mode: match limit.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        },
        descriptor,
        notes: notes(limit),
    }
}

/// What the configuration says and a wire cannot do.
fn notes(limit: &LimitConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(fallback) = &limit.fallback
        && fallback.denial_status().is_none()
        && !limit.rule.is_concurrency()
    {
        notes.push(format!(
            "`fallback` has the status {}, which a proxy that asks /v1/authorize takes for a yes: the proxy is given \
             the body under the status of its `deny`, or 429. A status from 400 to 599 is given as it is",
            fallback.status
        ));
    }
    notes
}

fn shown_error(error: &config::ConfigError) -> ShownError<'_> {
    let config::ConfigError { file, line, column, message, hint, .. } = error;
    ShownError { file, line: *line, column: *column, message, hint: hint.as_deref() }
}

fn write_text(limits: &[Shown], out: &mut impl Write) -> std::io::Result<()> {
    for limit in limits {
        let whom = match (&limit.key[..], &limit.descriptor) {
            ([], Some(_)) => "the values of its descriptor".to_owned(),
            ([], None) => "everybody together".to_owned(),
            (key, _) => key.join(", "),
        };
        writeln!(out, "{}\n  rule  {}\n        {}", limit.limit, limit.rule, limit.means)?;
        writeln!(out, "  key   {whom}")?;
        if !limit.when.is_empty() {
            writeln!(out, "  when  {}", limit.when.join(", "))?;
        }
        if let Some(descriptor) = &limit.descriptor {
            writeln!(out, "  envoy {descriptor}")?;
        }
        writeln!(out, "  mode  {}", limit.mode)?;
        for note in &limit.notes {
            writeln!(out, "  note  {note}")?;
        }
        writeln!(out)?;
    }
    match limits.len() {
        0 => writeln!(out, "good; no limit has a name"),
        1 => writeln!(out, "good: 1 limit"),
        count => writeln!(out, "good: {count} limits"),
    }
}

fn write_json(value: &serde_json::Value, out: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
