//! What can be said on the command line.
//!
//! Always   Without a word it does something useful and short: all ways, driven, on a SQLite that is gone afterwards.

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

/// A flash sale: thousands of buyers, few things, five ways of selling, with and without limits.
///
/// Without a command it drives: a crowd buys in every way, first straight from the database, then through the limits,
/// and a table says what became of it.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    /// What to do; to drive if nothing is said.
    pub command: Option<Command>,
    #[command(flatten)]
    /// How to drive.
    pub drive: Drive,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let a crowd buy in every way, and say what became of it (the default).
    Drive(Drive),
    /// Sell over HTTP until SIGINT or SIGTERM.
    Serve(Serve),
}

/// What is sold, from where, and within which limits.
#[derive(Clone, Debug, Args)]
pub struct Sale {
    /// `sqlite://FILE`, or `postgres://USER@HOST:PORT/NAME`; a SQLite in a temporary directory if not given.
    ///
    /// The tables are called `flash_sale_stock` and `flash_sale_orders`. `drive` begins every sale anew and deletes
    /// what is in them; `serve` goes on with the sale that it finds.
    #[arg(long, value_name = "URL", env = "FLASH_SALE_DATABASE")]
    pub database: Option<String>,
    /// How many things there are.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub stock: u32,
    /// The token bucket before the database, as a rule of Tidegate. Buyers wait for up to a second for a token.
    #[arg(long, value_name = "RULE", default_value = "400/s burst 20")]
    pub rate: Rule,
    /// The limit of each buyer, as a rule of Tidegate.
    #[arg(long, value_name = "RULE", default_value = "1/10s")]
    pub per_buyer: Rule,
    /// How many connections to the database there may be; 4 for SQLite, 16 for PostgreSQL if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: Option<u32>,
}

/// How to sell over HTTP.
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    /// What is sold.
    pub sale: Sale,
    /// Where to listen; port 0 takes any that is free, and says which.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    pub listen: SocketAddr,
}

/// How a crowd buys.
#[derive(Clone, Debug, Args)]
pub struct Drive {
    #[command(flatten)]
    /// What is sold.
    pub sale: Sale,
    /// How many attempts to buy are made, all at the same time.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub buyers: u32,
    /// Of ten attempts, how many are made by somebody who has made one already.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=9))]
    pub again: u32,
    /// Only these ways; may be repeated.
    #[arg(long, value_enum, value_name = "WAY")]
    pub way: Vec<Way>,
    /// Through the service on loopback, with a connection for each buyer, instead of in process.
    #[arg(long)]
    pub http: bool,
    /// Draw what became of it.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Where the database is.
pub enum Place {
    /// Where the user said.
    Given(String),
    /// In a directory that goes when this value does.
    Temporary(TempDir),
}

impl Sale {
    /// The user's database, or one of our own.
    pub fn place(&self) -> anyhow::Result<Place> {
        self.database.clone().map_or_else(
            || {
                let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir();
                Ok(Place::Temporary(directory.context("cannot make a temporary directory")?))
            },
            |url| Ok(Place::Given(url)),
        )
    }

    /// Opens what is at `place`.
    pub async fn open(&self, place: &Place) -> anyhow::Result<Database> {
        Database::open(&place.url(), self.connections(place)).await
    }

    /// How many connections there may be.
    pub fn connections(&self, place: &Place) -> u32 {
        // SQLite has one writer: more connections are only more that contend for its lock.
        self.connections.unwrap_or(if place.is_sqlite() { 4 } else { 16 })
    }

    /// The limits at the entrance.
    pub fn rules(&self) -> Rules {
        Rules { per_buyer: self.per_buyer.clone(), rate: self.rate.clone() }
    }
}

impl Place {
    /// As opposed to PostgreSQL.
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

impl fmt::Display for Place {
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
    fn a_rule_that_is_none_is_told_why() {
        let error = Options::try_parse_from(["flash-sale", "--rate", "fast"]).unwrap_err();
        assert!(error.to_string().contains("--rate <RULE>"), "{error}");
    }
}
