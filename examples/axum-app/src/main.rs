//! `cargo run -p axum-app [ADDRESS]`: serves until Ctrl-C or SIGTERM.

use axum_app::{Rules, app};
use std::net::SocketAddr;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    let app = app(&Rules::default())?;
    announce(listener.local_addr()?);
    // With connect info, so that the limits know the client's address.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).with_graceful_shutdown(shutdown_signal()).await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the address is the output of the program")]
fn announce(address: SocketAddr) {
    println!("listening on http://{address}; try");
    println!("  curl -i http://{address}/hello");
    println!("  curl -i http://{address}/notes -H 'x-api-key: alice'");
    println!("  curl -s http://{address}/metrics");
}

/// Waits for Ctrl-C or SIGTERM. Requests in flight are served before the program ends.
async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
