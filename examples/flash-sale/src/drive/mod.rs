//! `flash-sale drive`: a crowd buys in every way, without and with limits, and it is told what became of it.
//!
//! Always   Every sale begins with a full stock, a fresh entrance and nobody waiting.
//! Always   What is told of stock and orders is read from the database afterwards, not counted from answers; if the two
//!          disagree, that is an error.

mod counter;
mod crowd;
mod outcome;
mod picture;
mod table;

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::database::Database;
use crate::entrance::Entrance;
use crate::options::{Drive, Place};
use crate::shop::{Door, Shop};
use crate::way::Way;
use counter::Counter;
pub use crowd::Crowd;
pub use outcome::{Counts, Outcome};

/// One line of the table.
pub(crate) struct Row {
    way: Way,
    door: Door,
    outcome: Outcome,
}

/// What the table and the picture are about.
pub(crate) struct Report {
    place: String,
    crowd: Crowd,
    stock: u32,
    rate: String,
    per_buyer: String,
    rows: Vec<Row>,
}

/// Drives, prints and draws.
pub async fn run(options: Drive) -> anyhow::Result<()> {
    let place = options.sale.place()?;
    let crowd = Crowd { buyers: options.buyers, again_of_ten: options.again };
    let mut report = Report {
        place: described(&options, &place),
        crowd,
        stock: options.sale.stock,
        rate: options.sale.rate.to_string(),
        per_buyer: options.sale.per_buyer.to_string(),
        rows: Vec::new(),
    };
    let ways = if options.way.is_empty() { Way::ALL.to_vec() } else { options.way.clone() };
    let bar = progress(u64::from(options.buyers) * ways.len() as u64 * 2);
    for way in ways {
        for door in Door::BOTH {
            bar.set_message(format!("{way}, {}", door_name(door)));
            // A pool of its own: nothing of one sale is left for the next.
            let database = options.sale.open(&place).await?;
            let outcome = sale(&options, crowd, database, (way, door), &bar).await?;
            report.rows.push(Row { way, door, outcome });
        }
    }
    bar.finish_and_clear();
    io::stdout().lock().write_all(table::print(&report).as_bytes())?;
    if let Some(path) = &options.svg {
        fs::write(path, picture::draw(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn sale(
    options: &Drive,
    crowd: Crowd,
    database: Database,
    (way, door): (Way, Door),
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    database.restock(options.sale.stock).await.context("cannot begin a sale")?;
    let shop = Arc::new(Shop { database, entrance: Entrance::new(options.sale.rules()) });
    let counter = Counter::open(Arc::clone(&shop), options.http).await?;
    let before = shop.database.visits();
    let answers = crowd.rush(&counter, (way, door), bar).await?;
    let visits = shop.database.visits() - before;
    counter.close().await?;
    let tally = shop.database.tally().await?;
    shop.database.close().await;
    let told = i64::try_from(answers.counts.sold)?;
    ensure!(
        tally.orders == told,
        "{told} buyers were told that they have one, and there are {} orders",
        tally.orders
    );
    Ok(Outcome { answers, visits, tally })
}

/// Without the address, so that two runs say the same.
fn described(options: &Drive, place: &Place) -> String {
    let name = if place.is_sqlite() { "SQLite" } else { "PostgreSQL" };
    let over = if options.http { ", over HTTP" } else { "" };
    match options.sale.connections(place) {
        1 => format!("{name} through one connection{over}"),
        connections => format!("{name} through {connections} connections{over}"),
    }
}

/// Drawn on a terminal, and nowhere else.
fn progress(attempts: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} buyers  {elapsed}  {msg}")
        .expect("the template is constant");
    ProgressBar::new(attempts).with_style(style)
}

const fn door_name(door: Door) -> &'static str {
    match door {
        Door::Open => "no limits",
        Door::Guarded => "limits",
    }
}
