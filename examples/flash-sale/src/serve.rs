//! `flash-sale serve`: the service until it is told to stop.
//!
//! Always   Told to stop (SIGINT or SIGTERM), it takes no new connection, answers those who wait for a token or for the
//!          database, and closes the database; after ten seconds it stops anyway.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::entrance::Entrance;
use crate::http;
use crate::options::Serve;
use crate::shop::Shop;

/// Longer than anybody waits for a token.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Sells until a signal comes.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    let place = options.sale.place()?;
    let database = options.sale.open(&place).await?;
    database.put_on_sale(options.sale.stock).await?;
    let shop = Arc::new(Shop { database, entrance: Entrance::new(options.sale.rules()) });
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        format!("cannot listen on {}; choose another with --listen", options.listen)
    })?;
    let tally = shop.database.tally().await?;
    let (address, left) = (listener.local_addr()?, tally.count - tally.sale);
    say(&format!(
        "selling {left} of {} on http://{address}, from {place}\n\
         try: curl -s http://{address}/sale/condition -H 'content-type: application/json' -d '{{\"buyer\": 7}}'",
        tally.count
    ));
    let (ending, told) = watch::channel(());
    let service =
        axum::serve(listener, http::router(Arc::clone(&shop))).with_graceful_shutdown(gone(told));
    let mut service = tokio::spawn(service.into_future());
    told_to_stop().await?;
    drop(ending);
    // A peer that never finishes its request does not keep us.
    let ended = tokio::time::timeout(SHUTDOWN_MAX, &mut service).await;
    let tally = shop.database.tally().await?;
    say(&format!("stopped: {} sold, {} orders", tally.sale, tally.orders));
    shop.database.close().await;
    ended.map_or(Ok(()), |ended| Ok(ended.context("the service panicked")??))
}

async fn gone(mut told: watch::Receiver<()>) {
    // An error means that the sender is gone, which is what is waited for.
    while told.changed().await.is_ok() {}
}

async fn told_to_stop() -> io::Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Whoever started us may wait for the line. If they are gone, we sell on.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
