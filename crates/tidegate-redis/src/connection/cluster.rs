//! A cluster: which node owns which slot.
//!
//! Invariant  The owner of a slot is the one that a node of the cluster reported last. `MOVED` corrects one slot at once, and
//!            triggers a refresh of the whole slot map.

use super::address::{Address, Host};
use super::node::Node;
use super::reconnect;
use super::sentinel::{Primary, client};
use super::settings::Settings;
use crate::random;
use crate::sync::Mutex;
use redis::Value;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

const SLOTS: usize = 16_384;
/// Timeout of `CLUSTER SLOTS`.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The shortest and the longest interval between two refreshes of the slot map.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(100);
const REFRESH_INTERVAL_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Cluster {
    address: Address,
    settings: Settings,
    map: Mutex<SlotMap>,
    /// Wakes the refresh task.
    stale: Notify,
}

#[derive(Debug, Default)]
struct SlotMap {
    nodes: HashMap<Host, Arc<Node>>,
    /// The owner of each slot.
    owners: Vec<Option<Host>>,
    /// For nodes that own nothing any more: one each, and how often each was replaced or restarted.
    removed_changes: u64,
}

impl Cluster {
    /// Opens a cluster, waits at most `wait_max` for its slot map, and starts the task that refreshes it.
    pub(super) async fn open(
        address: Address,
        settings: Settings,
        wait_max: Duration,
    ) -> Arc<Self> {
        let cluster = Arc::new(Self::new(address, settings));
        let loaded = async {
            while let Err(why) = cluster.load_slots().await {
                tracing::warn!("no cluster yet: {why}");
                tokio::time::sleep(REFRESH_INTERVAL_MIN).await;
            }
        };
        // After a timeout requests find the cluster down.
        let _ = tokio::time::timeout(wait_max, loaded).await;
        tokio::spawn(keep_refreshed(Arc::downgrade(&cluster)));
        cluster
    }

    fn new(address: Address, settings: Settings) -> Self {
        let owners = vec![None; SLOTS];
        let map = SlotMap { nodes: HashMap::new(), owners, removed_changes: 0 };
        Self { address, settings, map: Mutex::new(map), stale: Notify::new() }
    }

    /// Requests a refresh of the slot map.
    pub(super) fn refresh(&self) {
        self.stale.notify_one();
    }

    /// Returns the owner of a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map.lock();
        let host = map.owners[usize::from(slot) % SLOTS].as_ref()?;
        map.nodes.get(host).cloned()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.lock().nodes.values().cloned().collect()
    }

    /// Returns how often a primary was replaced or restarted. The number never decreases, and a node that takes over from
    /// another increases it.
    pub(super) fn changes(&self) -> u64 {
        let map = self.map.lock();
        map.removed_changes + map.nodes.values().map(|node| node.changes()).sum::<u64>()
    }

    /// Returns the node at this address, and connects to it if it is new.
    pub(super) fn node(&self, host: &Host) -> Arc<Node> {
        let mut map = self.map.lock();
        let connect = || {
            let primary = Primary::new(self.address.clone(), host.clone());
            reconnect::start(primary, self.settings.clone())
        };
        Arc::clone(map.nodes.entry(host.clone()).or_insert_with(connect))
    }

    /// Records that this slot has another owner.
    pub(super) fn moved(&self, slot: u16, host: &Host) -> Arc<Node> {
        let node = self.node(host);
        let mut map = self.map.lock();
        map.owners[usize::from(slot) % SLOTS] = Some(host.clone());
        node
    }

    /// Loads the slot map from a known node, or from a host of the address.
    async fn load_slots(&self) -> Result<(), String> {
        let known: Vec<Host> = {
            let map = self.map.lock();
            map.nodes.keys().cloned().collect()
        };
        let mut why = "the address has no hosts".to_owned();
        for host in known.iter().chain(&self.address.hosts) {
            let asked = tokio::time::timeout(TIMEOUT, query_slots(&self.address, host)).await;
            match asked {
                Ok(Ok(ranges)) => {
                    self.adopt(&ranges);
                    return Ok(());
                }
                Ok(Err(error)) => why = format!("{host}: {error}"),
                Err(_) => why = format!("{host} did not answer within {TIMEOUT:?}"),
            }
        }
        Err(why)
    }

    fn adopt(&self, ranges: &[Range]) {
        for range in ranges {
            self.node(&range.owner);
        }
        let mut map = self.map.lock();
        for range in ranges {
            for slot in range.first..=range.last.min(SLOTS - 1) {
                map.owners[slot] = Some(range.owner.clone());
            }
        }
        // Nodes that own nothing any more are disconnected.
        let owners: std::collections::HashSet<Host> =
            map.owners.iter().flatten().cloned().collect();
        let SlotMap { nodes, removed_changes, .. } = &mut *map;
        nodes.retain(|host, node| {
            let stays = owners.contains(host);
            if !stays {
                *removed_changes += node.changes() + 1;
            }
            stays
        });
    }
}

/// Refreshes the slot map on request and at regular intervals, until the cluster is dropped.
async fn keep_refreshed(cluster: Weak<Cluster>) {
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        let _ = tokio::time::timeout(REFRESH_INTERVAL_MAX, strong.stale.notified()).await;
        if let Err(why) = strong.load_slots().await {
            tracing::debug!("the slot map cannot be loaded: {why}");
        }
        drop(strong);
        tokio::time::sleep(random::between(REFRESH_INTERVAL_MIN / 2, REFRESH_INTERVAL_MIN)).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: usize,
    last: usize,
    owner: Host,
}

async fn query_slots(address: &Address, host: &Host) -> Result<Vec<Range>, String> {
    let client = client(address, host).map_err(|error| error.to_string())?;
    let connected = client.get_multiplexed_async_connection().await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = command.query_async::<Value>(&mut connection).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let ranges = read(&answer, host).ok_or("its CLUSTER SLOTS cannot be read")?;
    if ranges.is_empty() {
        return Err("it knows of no slots yet".to_owned());
    }
    Ok(ranges)
}

/// Reads `[[first, last, [host, port, id], replicas…]…]`. An owner without a host is the node that was asked.
fn read(answer: &Value, asked: &Host) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    ranges.iter().map(|range| read_range(range, asked)).collect()
}

fn read_range(range: &Value, asked: &Host) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = parts.as_slice() else {
        return None;
    };
    let [name, Value::Int(port), ..] = owner.as_slice() else { return None };
    let name = match name {
        Value::BulkString(name) if !name.is_empty() => String::from_utf8(name.clone()).ok()?,
        _ => asked.name.clone(),
    };
    let owner = Host { name, port: u16::try_from(*port).ok()? };
    Some(Range { first: usize::try_from(*first).ok()?, last: usize::try_from(*last).ok()?, owner })
}

/// Returns the slot of a key: CRC16 (XMODEM) of its hash tag, or of the whole key.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    let mut crc = 0_u16;
    for byte in tag.unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` says.
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}bar"), 12_182);
        assert_eq!(slot(b"x{foo}{bar}"), 12_182);
        assert_eq!(slot(b"{}foo"), slot(b"{}foo"), "an empty tag is none");
        assert_ne!(slot(b"{}foo"), slot(b"foo"));
    }

    #[test]
    fn cluster_slots_are_read() {
        let text = b"*1\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:30001\r\n$2\r\nid\r\n";
        let answer = redis::parse_redis_value(text).expect("it is a reply");
        let asked = Host { name: "asked".to_owned(), port: 1 };
        let owner = Host { name: "127.0.0.1".to_owned(), port: 30_001 };
        assert_eq!(read(&answer, &asked), Some(vec![Range { first: 0, last: 5460, owner }]));
        assert_eq!(read(&Value::Int(1), &asked), None);
    }

    /// No server listens at these addresses: ownership does not depend on connections.
    #[tokio::test]
    async fn a_primary_that_takes_over_from_another_increases_the_count_of_changes() {
        let host = |port| Host { name: "127.0.0.1".to_owned(), port };
        let whole = |port| [Range { first: 0, last: SLOTS - 1, owner: host(port) }];
        let address: Address = "redis+cluster://127.0.0.1:1".parse().expect("it is good");
        let cluster = Cluster::new(address, Settings::default());
        cluster.adopt(&whole(1));
        let mut before = cluster.changes();
        for port in [2, 3, 2] {
            cluster.adopt(&whole(port));
            assert_eq!(cluster.nodes().len(), 1, "a node that owns nothing is disconnected");
            assert!(cluster.changes() > before, "the change is not counted");
            before = cluster.changes();
        }
        cluster.adopt(&whole(2));
        assert_eq!(cluster.changes(), before, "nothing has changed");
    }
}
