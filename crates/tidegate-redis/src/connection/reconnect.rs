//! The background task of a node that connects, checks its connections, and reconnects.
//!
//! Invariant  The task ends with its node.
//! Invariant  The pause between attempts doubles up to [`PAUSE_MAX`] and is random, so that a hundred nodes do not
//!            reconnect at the same moment.
//! Invariant  A connection that does not answer a `PING` is dropped, and so is one to a primary that sentinels have replaced.
//! Invariant  The circuit breaker is closed only when a `PING` is answered within the longest deadline of any caller:
//!            otherwise callers would time out and be charged.

use super::error;
use super::node::Node;
use super::sentinel::Primary;
use super::settings::Settings;
use crate::random;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The first and the longest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The interval between two checks of connections that work.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of connecting, including the handshake, and of a `PING`.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Creates a node, and starts the task that keeps it connected.
pub(super) fn start(primary: Primary, settings: Settings) -> Arc<Node> {
    let node = Arc::new(Node::new(primary, settings));
    tokio::spawn(keep_connected(Arc::downgrade(&node)));
    node
}

async fn keep_connected(node: Weak<Node>) {
    let mut pause = PAUSE_MIN;
    loop {
        let Some(strong) = node.upgrade() else { return };
        if check_connections(&strong).await {
            pause = PAUSE_MIN;
            strong.ready.notify_waiters();
            tokio::select! {
                () = strong.trouble.notified() => {}
                () = watch(&strong) => {}
            }
        } else {
            drop(strong);
            tokio::time::sleep(random::between(pause / 2, pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Waits until the next check is due, or until sentinels name another primary.
async fn watch(node: &Node) {
    let began = Instant::now();
    if let Some(successor) = node.primary.successor().await {
        node.disconnect(&format!("the sentinels say that {successor} is the primary"));
        return;
    }
    tokio::time::sleep_until(began + CHECK_INTERVAL).await;
}

/// Checks and restores all connections. Returns whether the node is up.
async fn check_connections(node: &Node) -> bool {
    let mut slowest = Duration::ZERO;
    for slot in &node.connections {
        if let Some((slot, mut connection)) = slot.connection() {
            match ping(&mut connection.stream).await {
                Ok(took) => slowest = slowest.max(took),
                Err(why) => {
                    node.note_failure(&why);
                    slot.discard(connection.generation);
                }
            }
        }
        if slot.is_connected() {
            continue;
        }
        match connect(node).await {
            Ok((connection, took)) => {
                slot.put(connection);
                slowest = slowest.max(took);
            }
            Err(why) => {
                node.note_failure(&why);
                node.breaker.open();
                return false;
            }
        }
    }
    if node.breaker.is_open() && slowest > node.longest_wait() {
        node.note_failure(&format!("a PING took {slowest:?}, longer than any deadline"));
        return false;
    }
    node.breaker.close();
    true
}

/// Returns how long the answer took.
async fn ping(connection: &mut MultiplexedConnection) -> Result<Duration, String> {
    let (ping, began) = (redis::cmd("PING"), Instant::now());
    let answer = tokio::time::timeout(TIMEOUT, connection.send_packed_command(&ping)).await;
    let answer = answer.map_err(|_| format!("no answer to a PING within {TIMEOUT:?}"))?;
    match answer.and_then(Value::extract_error) {
        Ok(_) => Ok(began.elapsed()),
        Err(error) => Err(error::redis_message(&error)),
    }
}

async fn connect(node: &Node) -> Result<(MultiplexedConnection, Duration), String> {
    let client = node.primary.find().await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        // Callers bound their requests themselves.
        .set_response_timeout(None);
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = match tokio::time::timeout(TIMEOUT, connected).await {
        Ok(connected) => connected.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("no connection within {TIMEOUT:?}")),
    };
    // A server may accept connections and never answer.
    let took = ping(&mut connection).await?;
    node.primary.identify(&mut connection).await?;
    Ok((connection, took))
}
