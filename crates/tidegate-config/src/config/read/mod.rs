//! Reads a [`Config`] from TOML, and reports all errors, not only the first.
//!
//! Always   A malicious file cannot keep the server busy: the size of the file is limited before it is parsed, and so is
//!          the number of entries of each list and table.

mod descriptor;
mod duration;
mod files;
mod limits;
mod report;
mod server;
mod store;
mod table;
mod value;
mod when;

use super::error::ConfigErrors;
use super::settings::{CheckUrl, Config};
use super::source::{SOURCE_BYTES_MAX, Sources, bytes_of, bytes_of_any, text_of, too_large};
use report::{Problem, Report};
use std::io;
use std::path::{Path, PathBuf};
use table::Table;
use toml::Spanned;
use toml::de::DeTable;

/// Maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: usize = SOURCE_BYTES_MAX;
/// In a file larger than this, only the first TOML syntax error is reported: a file of a megabyte can contain half a million.
const RECOVERABLE_BYTES_MAX: usize = 64 << 10;

/// Reads a configuration file. Paths in it are relative to its directory.
pub fn load(path: &Path, check_url: CheckUrl) -> Result<Config, ConfigErrors> {
    load_as(path, bytes_of_any, check_url)
}

/// Reads a regular file. A running server must not wait for a pipe.
pub(super) fn load_again(path: &Path, check_url: CheckUrl) -> Result<Config, ConfigErrors> {
    load_as(path, bytes_of, check_url)
}

fn load_as(
    path: &Path,
    bytes_of: fn(&Path) -> io::Result<Vec<u8>>,
    check_url: CheckUrl,
) -> Result<Config, ConfigErrors> {
    let mut sources = Sources::default();
    let read = bytes_of(path);
    sources.note(path, read.as_deref().ok());
    let bytes = read.map_err(|error| ConfigErrors::unreadable(path, &error));
    match bytes.and_then(|bytes| text_of(bytes).map_err(|why| ConfigErrors::whole(path, why))) {
        Ok(text) => parse_and_read(&text, &path.display().to_string(), sources, check_url),
        Err(errors) => Err(ConfigErrors { sources, ..errors }),
    }
}

/// Reads a configuration from the text of `file`.
pub fn read(text: &str, file: &str, check_url: CheckUrl) -> Result<Config, ConfigErrors> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ConfigErrors::whole(Path::new(file), too_large()));
    }
    parse_and_read(text, file, Sources::default(), check_url)
}

fn parse_and_read(
    text: &str,
    file: &str,
    sources: Sources,
    check_url: CheckUrl,
) -> Result<Config, ConfigErrors> {
    let (table, errors) = parse(text);
    let report = Report::new(text, file, sources);
    if !errors.is_empty()
        && let Some(language) = other_language(text)
    {
        report.error(0..0, Problem::new(format!("this looks like {language}, but a configuration is TOML")).hint(
            "write, for example, `[limits.login]` and on the next line `rule = \"5/min\"`; `tidegate import` translates Envoy's YAML",
        ));
        return closed(report, Config::default());
    }
    for error in &errors {
        report.error(error.span().unwrap_or(0..0), Problem::new(error.message()));
    }
    if !errors.is_empty() {
        // Errors in what is left of the text may only be consequences of the syntax errors.
        return closed(report, Config::default());
    }
    let config = config(&Table::new(&report, "the file", table.get_ref(), 0..0, false), check_url);
    closed(report, config)
}

/// Returns the configuration if no error was reported.
fn closed(report: Report<'_>, config: Config) -> Result<Config, ConfigErrors> {
    let (warnings, sources) = report.close()?;
    Ok(Config { warnings, sources, ..config })
}

/// Returns the language of a text that is not TOML, judged by its first line.
fn other_language(text: &str) -> Option<&'static str> {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next()?;
    let is_key = |key: &str| {
        let key = key.trim_start_matches("- ").trim_matches(['"', '\'']);
        !key.is_empty()
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let has_yaml_key =
        |(key, rest): (&str, &str)| is_key(key) && (rest.is_empty() || rest.starts_with(' '));
    if line.starts_with('{') {
        Some("JSON")
    } else if line == "---"
        || line.starts_with("%YAML")
        || line.split_once(':').is_some_and(has_yaml_key)
    {
        Some("YAML")
    } else {
        None
    }
}

/// Parses TOML. Returns the part that could be parsed, and the syntax errors: all of them, or the first.
fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<toml::de::Error>) {
    if text.len() <= RECOVERABLE_BYTES_MAX {
        return DeTable::parse_recoverable(text);
    }
    match DeTable::parse(text) {
        Ok(table) => (table, Vec::new()),
        Err(error) => (Spanned::new(0..0, DeTable::new()), vec![error]),
    }
}

fn config(table: &Table<'_>, check_url: CheckUrl) -> Config {
    let directory = directory(table.report().file);
    let server = table.get("server").and_then(|value| value.table());
    let store = table.get("store").and_then(|value| value.table());
    let limits = table.get("limits").and_then(|value| value.table());
    let server = server.map(|server| server::read(&server, &directory)).unwrap_or_default();
    let (is_shared, has_tokens) = (store.is_some(), !server.tokens.is_empty());
    let limits = limits.map(|limits| limits::read(&limits, is_shared, has_tokens));
    let config = Config {
        server,
        limits: limits.unwrap_or_default(),
        store: store.and_then(|store| store::read(&store, check_url)),
        ..Config::default()
    };
    table.refuse_unknown();
    config
}

/// Returns the directory that the file's relative paths start from.
fn directory(file: &str) -> PathBuf {
    Path::new(file).parent().map(Path::to_path_buf).unwrap_or_default()
}
