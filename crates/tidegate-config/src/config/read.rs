//! From TOML to a [`Config`]: everything that is wrong is told, not only the first of it.
//!
//! Always   Whoever can write the file cannot keep the server busy with it: its size is capped before it is
//!          parsed, and so is the number of everything in it.

use super::report::{Report, Wrong};
use super::source::{SOURCE_BYTES_MAX, Sources, bytes_of, bytes_of_any};
use super::table::Table;
use super::{CheckUrl, Config, ConfigErrors, limits, server, store};
use std::io;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeTable;

/// A file is no larger than this.
pub const FILE_BYTES_MAX: usize = SOURCE_BYTES_MAX;
/// Of a file larger than this, only the first place that is not TOML is told: a file made of nothing else
/// has half a million of them.
const MENDED_BYTES_MAX: usize = 64 << 10;

/// Reads a file. Paths in it are relative to its directory.
pub fn load(path: &Path, check_url: CheckUrl) -> Result<Config, ConfigErrors> {
    load_as(path, bytes_of_any, check_url)
}

/// The same of a regular file only: for a server that runs, which must not wait for a pipe.
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

/// Reads a text that came from `file`.
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
        report.tell(0..0, Wrong::new(format!("this looks like {language}, and a configuration is TOML")).hint(
            "such as `[limits.login]` and below it `rule = \"5/min\"`; `tidegate import` translates Envoy's YAML",
        ));
        return report.close(Config::default());
    }
    for error in &errors {
        report.tell(error.span().unwrap_or(0..0), Wrong::new(error.message()));
    }
    if !errors.is_empty() {
        // What could be made of the rest would be told as errors that are none.
        return report.close(Config::default());
    }
    let config = config(&Table::new(&report, "the file", table.get_ref(), 0..0, false), check_url);
    report.close(config)
}

/// What somebody has written who did not know that it is TOML: by the first line that says something.
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

/// What could be made of the text, and what is wrong with it as TOML: all of it, or the first thing.
fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<toml::de::Error>) {
    if text.len() <= MENDED_BYTES_MAX {
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

/// Where the file's relative paths begin.
fn directory(file: &str) -> PathBuf {
    Path::new(file).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The text of a file that is not too large, or why there is none.
pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > SOURCE_BYTES_MAX {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        format!("is not UTF-8 text: see line {line}")
    })
}

pub(super) fn too_large() -> String {
    format!("is larger than {SOURCE_BYTES_MAX} bytes")
}
