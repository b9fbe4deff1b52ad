//! Sockets: listeners, worker threads, deadlines and TLS.
//!
//! ```text
//! listener          binds the sockets, starts and stops the workers
//!   worker          one thread: accepts connections and serves them
//!     tls           the handshake
//!     resp http1 http2    read and write the bytes of a connection; `protocol` answers them
//!   deadlines       until when each connection may be in its present state
//!   unauthenticated connections that may be closed for new ones
//! ```
//!
//! Invariant A worker is a thread with a runtime of its own, so a connection stays on one core.
//! Invariant Accepting never ends because of an error: without free descriptors it waits and tries again (T45). A connection over the
//!           maximum is rejected immediately, unless an unauthenticated one can be closed for it.

mod deadlines;
mod http1;
mod http2;
mod listener;
mod resp;
mod stream;
mod tls;
mod unauthenticated;
mod worker;

pub use crate::server::Wire;
pub use listener::{Addresses, Running, start};
pub(crate) use worker::{ADMIN_CONNECTIONS_MAX, REJECTIONS_MAX};

use tokio::sync::watch;

/// Waits until the server shuts down.
async fn shutdown(closing: &mut watch::Receiver<bool>) {
    // The sender lives until all workers have ended.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}
