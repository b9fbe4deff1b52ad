//! `flash-sale serve`: runs the service until a signal.
//!
//! Always   After SIGINT or SIGTERM it accepts no connection, answers the requests that wait for a token or for the
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

/// Longer than any buyer waits for a token.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Runs the service until a signal.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    let location = options.sale.location()?;
    let database = options.sale.open(&location).await?;
    database.put_on_sale(options.sale.stock).await?;
    let shop = Arc::new(Shop { database, entrance: Entrance::new(options.sale.rules()) });
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        format!("cannot listen on {}; choose another with --listen", options.listen)
    })?;
    let tally = shop.database.tally().await?;
    let (address, left) = (listener.local_addr()?, tally.count - tally.sale);
    say(&format!(
        "selling {left} of {} on http://{address}, from {location}\n\
         try: curl -s http://{address}/sale/condition -H 'content-type: application/json' -d '{{\"buyer\": 7}}'",
        tally.count
    ));
    let (ending, ended) = watch::channel(());
    let service = axum::serve(listener, http::router(Arc::clone(&shop)))
        .with_graceful_shutdown(closed(ended));
    let mut service = tokio::spawn(service.into_future());
    signal_received().await?;
    drop(ending);
    // A client that never completes its request does not delay the shutdown.
    let ended = tokio::time::timeout(SHUTDOWN_MAX, &mut service).await;
    let tally = shop.database.tally().await?;
    say(&format!("stopped: {} sold, {} orders", tally.sale, tally.orders));
    shop.database.close().await;
    ended.map_or(Ok(()), |ended| Ok(ended.context("the service panicked")??))
}

async fn closed(mut ended: watch::Receiver<()>) {
    // An error means that the sender was dropped.
    while ended.changed().await.is_ok() {}
}

async fn signal_received() -> io::Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Prints a line at once, because the parent process may wait for it. Ignores a closed standard output.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
