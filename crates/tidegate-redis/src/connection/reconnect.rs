//! Keeps a node's connections: makes them, tries them, gives them up.
//!
//! Always   It ends with its node. Its steps grow to [`STEP_MAX`] while nothing helps, and are random, so that
//!          a hundred nodes do not come back at the same moment.
//!          A server that accepts and never answers is found out: a connection that does not answer a `PING` is
//!          given up. One that sentinels have replaced is left, though it answers. A server that was left alone is asked again when it answers one as fast as callers need it:
//!          else they would wait in vain, and be charged for it.

use super::error;
use super::node::Node;
use crate::random;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Between two attempts, at first and at last.
const STEP_MIN: Duration = Duration::from_millis(20);
const STEP_MAX: Duration = Duration::from_millis(500);
/// Between two looks at connections that nobody complains about.
const LOOK: Duration = Duration::from_secs(1);
/// For a connection, handshake and all, and for a `PING`.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn start(node: &Arc<Node>) {
    let node = Arc::downgrade(node);
    tokio::spawn(keep(node));
}

async fn keep(node: Weak<Node>) {
    let mut step = STEP_MIN;
    loop {
        let Some(strong) = node.upgrade() else { return };
        let is_well = look_after(&strong).await;
        if is_well {
            step = STEP_MIN;
            strong.ready.notify_waiters();
            tokio::select! {
                () = strong.trouble.notified() => {}
                () = look_on(&strong) => {}
            }
        } else {
            let wait = random::between(step / 2, step);
            drop(strong);
            tokio::time::sleep(wait).await;
            step = (step * 2).min(STEP_MAX);
        }
    }
}

/// Until it is time to look again, or sentinels say that it is another server.
async fn look_on(node: &Node) {
    let began = Instant::now();
    if let Some(successor) = node.primary.successor().await {
        node.leave(&format!("the sentinels say that {successor} is the primary"));
        return;
    }
    tokio::time::sleep_until(began + LOOK).await;
}

/// Whether all is as it should be, now.
async fn look_after(node: &Node) -> bool {
    let mut slowest = Duration::ZERO;
    for lane in &node.lanes {
        if let Some((lane, mut connection)) = lane.connection() {
            match pong(&mut connection.one).await {
                Ok(took) => slowest = slowest.max(took),
                Err(why) => {
                    node.failed(&why);
                    lane.lose(connection.number);
                }
            }
        }
        if lane.is_connected() {
            continue;
        }
        match connect(node).await {
            Ok((connection, took)) => {
                lane.put(connection);
                slowest = slowest.max(took);
            }
            Err(why) => {
                node.failed(&why);
                node.breaker.open();
                return false;
            }
        }
    }
    if node.breaker.is_open() && slowest > node.longest_wait() {
        node.failed(&format!("a PING took {slowest:?}, and nobody waits so long"));
        return false;
    }
    node.breaker.close();
    true
}

/// How long the answer took.
async fn pong(connection: &mut MultiplexedConnection) -> Result<Duration, String> {
    let (ping, began) = (redis::cmd("PING"), Instant::now());
    let answer = tokio::time::timeout(PATIENCE, connection.send_packed_command(&ping)).await;
    let answer = answer.map_err(|_| format!("no answer to a PING within {PATIENCE:?}"))?;
    match answer.and_then(Value::extract_error) {
        Ok(_) => Ok(began.elapsed()),
        Err(error) => Err(error::words(&error)),
    }
}

async fn connect(node: &Node) -> Result<(MultiplexedConnection, Duration), String> {
    let client = node.primary.find().await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        // Callers have deadlines of their own.
        .set_response_timeout(None);
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = match tokio::time::timeout(PATIENCE, connected).await {
        Ok(connected) => connected.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("no connection within {PATIENCE:?}")),
    };
    // That somebody accepts does not say that anybody answers.
    let took = pong(&mut connection).await?;
    node.primary.meet(&mut connection).await?;
    Ok((connection, took))
}
