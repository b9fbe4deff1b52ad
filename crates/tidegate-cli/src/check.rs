//! `tidegate check`: validates a configuration, and explains its limits.

mod store;

use crate::flags::{Format, ServerFlags};
use crate::output::{CommandStatus, refuse_unreadable, write_json, write_stderr};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use tidegate::Clock;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{self, Config, ConfigErrors, LimitConfig, Mode};

/// Validate a configuration, and explain each of its limits
///
/// A configuration is valid if `tidegate serve --config FILE` with the same flags would start up to the point where it
/// binds its sockets. Certificates and private keys are read, too. Exits with 0 if the configuration is valid, 1 if it
/// is invalid or --connect finds a problem with the store, and 2 if the file cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Configuration file
    file: PathBuf,
    /// Connect to the configured Redis, and check that it answers, evicts no keys and grants the permissions needed
    #[arg(long)]
    connect: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten, next_help_heading = "Flags of `serve`")]
    server: ServerFlags,
}

/// A limit, as it is printed.
#[derive(Debug, Serialize)]
struct LimitReport {
    limit: String,
    rule: String,
    means: String,
    key: Vec<String>,
    when: Vec<String>,
    mode: &'static str,
    descriptor: Option<String>,
    /// Remarks about settings that are valid and may surprise.
    notes: Vec<String>,
}

/// An error in the configuration, for JSON output.
#[derive(Debug, Serialize)]
struct ErrorReport<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Check {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        match config::for_start(Some(&self.file), &self.server.command_line()) {
            Ok(config) => self.show(&config, out),
            Err(errors) => {
                refuse_unreadable(&errors)?;
                self.show_errors(&errors, out)
            }
        }
    }

    fn show(&self, config: &Config, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let limits: Vec<LimitReport> = config.limits.iter().map(limit_report).collect();
        let store = if self.connect { Some(store::examine(config)?) } else { None };
        let warnings = config.warnings_at(ServerClock::system().calendar_now());
        match self.format {
            Format::Text => write_text(&limits, out)?,
            Format::Short => {
                for LimitReport { limit, rule, means, notes, .. } in &limits {
                    writeln!(out, "{limit}: {rule}: {means}")?;
                    for note in notes {
                        writeln!(out, "{limit}: note: {note}")?;
                    }
                }
            }
            Format::Json => {
                let warnings: Vec<ErrorReport<'_>> = warnings.iter().map(error_report).collect();
                let mut all = serde_json::json!({ "limits": limits, "warnings": warnings });
                if let Some(store) = &store {
                    all["store"] = serde_json::json!(store);
                }
                write_json(&all, out)?;
            }
        }
        if self.format != Format::Json {
            for warning in &warnings {
                write_stderr(&format!("warning: {warning}"));
            }
        }
        let Some(store) = store else { return Ok(CommandStatus::Success) };
        if self.format != Format::Json {
            store.write(out)?;
        }
        Ok(if store.is_good() { CommandStatus::Success } else { CommandStatus::Problems })
    }

    fn show_errors(
        &self,
        errors: &ConfigErrors,
        out: &mut impl Write,
    ) -> anyhow::Result<CommandStatus> {
        match self.format {
            Format::Text => write_stderr(&errors.to_string()),
            Format::Short => {
                for error in &errors.errors {
                    let bare = config::ConfigError { excerpt: None, hint: None, ..error.clone() };
                    write_stderr(&bare.to_string());
                }
            }
            Format::Json => {
                let errors: Vec<ErrorReport<'_>> = errors.errors.iter().map(error_report).collect();
                write_json(&serde_json::json!({ "errors": errors }), out)?;
            }
        }
        Ok(CommandStatus::Problems)
    }
}

fn limit_report(limit: &LimitConfig) -> LimitReport {
    let descriptor = limit.descriptor.as_ref().map(|descriptor| {
        let entries: Vec<String> = descriptor.entries.iter().map(ToString::to_string).collect();
        format!("{}: {}", descriptor.domain, entries.join(", "))
    });
    LimitReport {
        limit: limit.name.clone(),
        rule: limit.rule.to_string(),
        means: config::describe_rule(&limit.rule),
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

/// Returns a remark for each setting that some protocol cannot honour.
fn notes(limit: &LimitConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(fallback) = &limit.fallback
        && fallback.denial_status().is_none()
        && !limit.rule.is_concurrency()
    {
        notes.push(format!(
            "`fallback` has the status {}. A proxy that calls /v1/authorize would treat it as permission, so it gets the \
             body with the status of `deny` instead, or 429. Only statuses from 400 to 599 are passed on unchanged",
            fallback.status
        ));
    }
    notes
}

fn error_report(error: &config::ConfigError) -> ErrorReport<'_> {
    let config::ConfigError { file, line, column, message, hint, .. } = error;
    ErrorReport { file, line: *line, column: *column, message, hint: hint.as_deref() }
}

fn write_text(limits: &[LimitReport], out: &mut impl Write) -> std::io::Result<()> {
    for limit in limits {
        let counted_by = match (&limit.key[..], &limit.descriptor) {
            ([], Some(_)) => "the values of its descriptor".to_owned(),
            ([], None) => "none: all requests together".to_owned(),
            (key, _) => key.join(", "),
        };
        writeln!(out, "{}\n  rule  {}\n        {}", limit.limit, limit.rule, limit.means)?;
        writeln!(out, "  key   {counted_by}")?;
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
        0 => writeln!(out, "valid: no limits"),
        1 => writeln!(out, "valid: 1 limit"),
        count => writeln!(out, "valid: {count} limits"),
    }
}
