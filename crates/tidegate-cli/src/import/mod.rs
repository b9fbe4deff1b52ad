//! `tidegate import`: translates the configuration of another program into one for tidegate.
//!
//! Always   Nothing is dropped silently: each line that could not be translated is reported. The output is a valid
//!          configuration.

mod envoy;
mod rate;
mod toml;
mod yaml;

use crate::output::{CommandStatus, write_stderr};
use anyhow::Context;
use clap::Subcommand;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Translate the configuration of another program
///
/// Prints a tidegate configuration to standard output, and each line that could not be translated to standard error.
/// Exits with 0 if everything was translated, 1 if something was not, and 2 if the file cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Translate a YAML file of envoyproxy/ratelimit
    Envoy {
        /// File to translate
        file: PathBuf,
    },
}

/// A translated configuration.
#[derive(Debug, Default)]
struct Translation {
    toml: String,
    untranslated: Vec<Untranslated>,
}

/// A line that could not be translated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Untranslated {
    line: u64,
    why: String,
}

impl Import {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let From::Envoy { file } = &self.from;
        let name = file.display();
        let text = read(file).with_context(|| format!("{name}: cannot be read"))?;
        let translation = envoy::import(&text).with_context(|| format!("{name}"))?;
        out.write_all(translation.toml.as_bytes())?;
        for Untranslated { line, why } in &translation.untranslated {
            write_stderr(&format!("{name}:{line}: not translated: {why}"));
        }
        Ok(if translation.untranslated.is_empty() {
            CommandStatus::Success
        } else {
            CommandStatus::Problems
        })
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    // Reads one byte beyond the limit to notice a larger file; a pipe has no size to ask for.
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    anyhow::ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "the file is larger than {FILE_BYTES_MAX} bytes"
    );
    Ok(text)
}
