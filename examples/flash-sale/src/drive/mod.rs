//! `flash-sale drive`: simulated buyers buy in every way, without and with limits, and a table shows the results.
//!
//! Always   Every sale starts with a full stock, fresh limits and no waiters.
//! Always   Stock and orders are read from the database afterwards, not counted from replies; if the two differ, that is
//!          an error.

mod buyers;
mod counter;
mod picture;
mod result;
mod table;

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::database::Database;
use crate::entrance::Entrance;
use crate::options::{DatabaseLocation, Drive};
use crate::shop::{Access, Shop};
use crate::way::Way;
pub use buyers::BuyerGroup;
use counter::Counter;
pub use result::{Counts, SaleResult};

/// One line of the table.
pub(crate) struct Row {
    way: Way,
    access: Access,
    result: SaleResult,
}

/// The results for the table and the picture.
pub(crate) struct Report {
    database: String,
    buyers: BuyerGroup,
    stock: u32,
    rate: String,
    per_buyer: String,
    rows: Vec<Row>,
}

/// Runs all sales, prints the table and draws the picture.
pub async fn run(options: Drive) -> anyhow::Result<()> {
    let location = options.sale.location()?;
    let buyers = BuyerGroup { buyers: options.buyers, again_of_ten: options.again };
    let mut report = Report {
        database: described(&options, &location),
        buyers,
        stock: options.sale.stock,
        rate: options.sale.rate.to_string(),
        per_buyer: options.sale.per_buyer.to_string(),
        rows: Vec::new(),
    };
    let ways = if options.way.is_empty() { Way::ALL.to_vec() } else { options.way.clone() };
    let bar = progress(u64::from(options.buyers) * ways.len() as u64 * 2);
    for way in ways {
        for access in Access::BOTH {
            bar.set_message(format!("{way}, {}", access_name(access)));
            // Each sale has its own pool, so that no sale affects the next.
            let database = options.sale.open(&location).await?;
            let result = sale(&options, buyers, database, (way, access), &bar).await?;
            report.rows.push(Row { way, access, result });
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
    buyers: BuyerGroup,
    database: Database,
    (way, access): (Way, Access),
    bar: &ProgressBar,
) -> anyhow::Result<SaleResult> {
    database.restock(options.sale.stock).await.context("cannot begin a sale")?;
    let shop = Arc::new(Shop { database, entrance: Entrance::new(options.sale.rules()) });
    let counter = Counter::open(Arc::clone(&shop), options.http).await?;
    let before = shop.database.visits();
    let answers = buyers.rush(&counter, (way, access), bar).await?;
    let visits = shop.database.visits() - before;
    counter.close().await?;
    let tally = shop.database.tally().await?;
    shop.database.close().await;
    let sold = i64::try_from(answers.counts.sold)?;
    ensure!(
        tally.orders == sold,
        "{sold} buyers got the reply \"sold\", but there are {} orders",
        tally.orders
    );
    Ok(SaleResult { answers, visits, tally })
}

/// Describes the database without its address, so that two runs print the same.
fn described(options: &Drive, location: &DatabaseLocation) -> String {
    let name = if location.is_sqlite() { "SQLite" } else { "PostgreSQL" };
    let over = if options.http { ", over HTTP" } else { "" };
    match options.sale.connections(location) {
        1 => format!("{name} through one connection{over}"),
        connections => format!("{name} through {connections} connections{over}"),
    }
}

/// Returns a progress bar, which is drawn on a terminal only.
fn progress(attempts: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} buyers  {elapsed}  {msg}")
        .expect("the template is constant");
    ProgressBar::new(attempts).with_style(style)
}

const fn access_name(access: Access) -> &'static str {
    match access {
        Access::Open => "no limits",
        Access::Guarded => "limits",
    }
}
