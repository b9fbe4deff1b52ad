//! `tidegate import`: other people's configurations as ours.
//!
//! Always   Nothing is left out silently: what could not be translated is told with its line. What is printed
//!          is a good configuration.

mod envoy;
mod rate;
mod toml;
mod yaml;

use crate::output::{Found, complain};
use anyhow::Context;
use clap::Subcommand;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

/// A file is no larger than this.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Translate another program's configuration
///
/// Prints ours to standard output, and to standard error each line that could not be translated; then it
/// exits with 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// From the YAML of envoyproxy/ratelimit
    Envoy {
        /// The file
        file: PathBuf,
    },
}

/// What came of a translation.
#[derive(Debug, Default)]
struct Imported {
    toml: String,
    left_out: Vec<LeftOut>,
}

/// A line that could not be translated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeftOut {
    line: u64,
    why: String,
}

impl Import {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        let From::Envoy { file } = &self.from;
        let name = file.display();
        let text = read(file).with_context(|| format!("{name}: cannot be read"))?;
        let imported = envoy::import(&text).with_context(|| format!("{name}"))?;
        out.write_all(imported.toml.as_bytes())?;
        for LeftOut { line, why } in &imported.left_out {
            complain(&format!("{name}:{line}: not translated: {why}"));
        }
        Ok(if imported.left_out.is_empty() { Found::Fine } else { Found::Wrong })
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    // One byte more tells what is too large from what is just not, also of a pipe, which has no size.
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    anyhow::ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "it is larger than {FILE_BYTES_MAX} bytes"
    );
    Ok(text)
}
