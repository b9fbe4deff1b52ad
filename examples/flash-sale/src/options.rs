//! The command line.
//!
//! Always   Without arguments the program runs a short comparison of all ways, on a temporary SQLite.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tempfile::TempDir;
use tidegate::Rule;

use crate::database::{self, Database};
use crate::entrance::Rules;
use crate::way::Way;

/// A flash sale: thousands of buyers, few items, five ways of selling, with and without limits.
///
/// Without a command it runs `drive`: simulated buyers buy in every way, first without limits, then with limits, and a
/// table shows the results.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    /// The command; default: `drive`.
    pub command: Option<Command>,
    #[command(flatten)]
    /// Options of `drive`.
    pub drive: Drive,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate buyers in every way, and print the results (default).
    Drive(Drive),
    /// Sell over HTTP until SIGINT or SIGTERM.
    Serve(Serve),
}

/// The items, the database and the limits.
#[derive(Clone, Debug, Args)]
pub struct Sale {
    /// `sqlite://FILE`, or `postgres://USER@HOST:PORT/NAME`; default: a SQLite in a temporary directory.
    ///
    /// The tables are called `flash_sale_stock` and `flash_sale_orders`. `drive` starts every sale anew and deletes
    /// their contents; `serve` continues an existing sale.
    #[arg(long, value_name = "URL", env = "FLASH_SALE_DATABASE")]
    pub database: Option<String>,
    /// Number of items.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub stock: u32,
    /// Rule of the token bucket before the database. Buyers wait up to a second for a token.
    #[arg(long, value_name = "RULE", default_value = "400/s burst 20")]
    pub rate: Rule,
    /// Rule of the limit for each buyer.
    #[arg(long, value_name = "RULE", default_value = "1/10s")]
    pub per_buyer: Rule,
    /// Maximum number of database connections; default: 4 for SQLite, 16 for PostgreSQL.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: Option<u32>,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    /// The sale.
    pub sale: Sale,
    /// Listen address; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    pub listen: SocketAddr,
}

/// Options of `drive`.
#[derive(Clone, Debug, Args)]
pub struct Drive {
    #[command(flatten)]
    /// The sale.
    pub sale: Sale,
    /// Number of attempts to buy, all at the same time.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub buyers: u32,
    /// How many of ten attempts are repeated attempts of the same buyer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=9))]
    pub again: u32,
    /// Only this way; can be repeated.
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Vec<Way>,
    /// Buy through the service over loopback, with a connection for each buyer, instead of in process.
    #[arg(long)]
    pub http: bool,
    /// Draw the results into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The location of the database.
pub enum DatabaseLocation {
    /// The URL from the command line.
    Given(String),
    /// A temporary directory, deleted when this value is dropped.
    Temporary(TempDir),
}

impl Sale {
    /// Returns the user's database, or a temporary one.
    pub fn location(&self) -> anyhow::Result<DatabaseLocation> {
        self.database.clone().map_or_else(
            || {
                let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir();
                Ok(DatabaseLocation::Temporary(
                    directory.context("cannot make a temporary directory")?,
                ))
            },
            |url| Ok(DatabaseLocation::Given(url)),
        )
    }

    /// Opens the database.
    pub async fn open(&self, location: &DatabaseLocation) -> anyhow::Result<Database> {
        Database::open(&location.url(), self.connections(location)).await
    }

    /// Returns the maximum number of connections.
    pub fn connections(&self, location: &DatabaseLocation) -> u32 {
        // SQLite has one writer: more connections only add contention for its lock.
        self.connections.unwrap_or(if location.is_sqlite() { 4 } else { 16 })
    }

    /// Returns the rules of the limits.
    pub fn rules(&self) -> Rules {
        Rules { per_buyer: self.per_buyer.clone(), rate: self.rate.clone() }
    }
}

impl DatabaseLocation {
    /// Returns whether it is SQLite, not PostgreSQL.
    pub fn is_sqlite(&self) -> bool {
        matches!(self, Self::Temporary(_)) || self.url().starts_with("sqlite")
    }

    fn url(&self) -> String {
        match self {
            Self::Given(url) => url.clone(),
            Self::Temporary(directory) => {
                format!("sqlite://{}", directory.path().join("sale.db").display())
            }
        }
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(url) => f.write_str(&database::without_password(url)),
            Self::Temporary(_) => f.write_str("a temporary SQLite"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn without_a_command_the_options_are_those_of_drive() {
        let options = Options::parse_from(["flash-sale", "--buyers", "7", "--rate", "5/s"]);
        assert!(options.command.is_none());
        assert_eq!((options.drive.buyers, options.drive.sale.stock), (7, 100));
    }

    #[test]
    fn an_invalid_rule_is_an_error() {
        let error = Options::try_parse_from(["flash-sale", "--rate", "fast"]).unwrap_err();
        assert!(error.to_string().contains("--rate <RULE>"), "{error}");
    }
}
