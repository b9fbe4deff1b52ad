//! From TOML to a [`Config`]: everything that is wrong is told, not only the first of it.
//!
//! Always   Whoever can write the file cannot keep the server busy with it: its size is capped before it is
//!          parsed, and so is the number of everything in it.

use super::report::{Report, Wrong, whole_file};
use super::table::Table;
use super::{CommandLine, Config, ConfigErrors, limits, server, store};
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeTable;

/// A file is no larger than this.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Of a file larger than this, only the first place that is not TOML is told: a file made of nothing else
/// has half a million of them.
const MENDED_BYTES_MAX: usize = 64 << 10;

/// Reads a file. Paths in it are relative to its directory.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let file = path.display().to_string();
    match text_of(path, FILE_BYTES_MAX) {
        Ok(text) => read(&text, &file),
        Err(message) => Err(ConfigErrors { errors: vec![whole_file(&file, message)] }),
    }
}

/// Reads a text that came from `file`.
pub fn read(text: &str, file: &str) -> Result<Config, ConfigErrors> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ConfigErrors { errors: vec![whole_file(file, too_large(FILE_BYTES_MAX))] });
    }
    let (table, errors) = parse(text);
    let report = Report::new(text, file);
    for error in &errors {
        report.tell(error.span().unwrap_or(0..0), Wrong::new(error.message()));
    }
    if !errors.is_empty() {
        // What could be made of the rest would be told as errors that are none.
        return report.close(Config::default());
    }
    let config = config(&Table::new(&report, "the file", table.get_ref(), 0..0, false));
    report.close(config)
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

fn config(table: &Table<'_>) -> Config {
    let directory = directory(table.report().file);
    let server = table.get("server").and_then(|value| value.table());
    let store = table.get("store").and_then(|value| value.table());
    let limits = table.get("limits").and_then(|value| value.table());
    let config = Config {
        server: server.map(|server| server::read(&server, &directory)).unwrap_or_default(),
        limits: limits.map(|limits| limits::read(&limits, store.is_some())).unwrap_or_default(),
        store: store.and_then(|store| store::read(&store)),
        command_line: CommandLine::default(),
    };
    table.refuse_unknown();
    config
}

/// Where the file's relative paths begin.
fn directory(file: &str) -> PathBuf {
    Path::new(file).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The text of a file that is not too large, or why there is none.
pub(super) fn text_of(path: &Path, bytes_max: usize) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // One byte more tells a file that is too large from one that is just not.
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        format!("is not UTF-8 text: see line {line}")
    })
}

fn too_large(bytes_max: usize) -> String {
    format!("is larger than {bytes_max} bytes")
}
