//! A cluster: which slot is whose.
//!
//! Always   A slot's owner is what a node of the cluster said last. `MOVED` corrects one slot at once, and has all
//!          looked up anew.

use super::address::{Address, Host};
use super::node::Node;
use super::sentinel::{Primary, client};
use crate::connection::Settings;
use crate::random;
use redis::Value;
use std::collections::HashMap;
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;

const SLOTS: usize = 16_384;
/// For a node to tell who owns what.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two times that it is looked up, at least and at most.
const LOOK_UP_MIN: Duration = Duration::from_millis(100);
const LOOK_UP_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Cluster {
    address: Address,
    settings: Settings,
    map: RwLock<Map>,
    /// Wakes who looks it up.
    doubts: Notify,
}

#[derive(Debug, Default)]
struct Map {
    nodes: HashMap<Host, Arc<Node>>,
    /// Who owns which slot: index into nothing, the host itself.
    owners: Vec<Option<Host>>,
    /// How often those had changed who are no longer here, and how many they are.
    gone: u64,
}

impl Cluster {
    /// A cluster, and somebody who looks up who owns what. One that is not there yet is waited for.
    pub(super) async fn open(
        address: Address,
        settings: Settings,
        patience: Duration,
    ) -> Arc<Self> {
        let map = Map { nodes: HashMap::new(), owners: vec![None; SLOTS], gone: 0 };
        let doubts = Notify::new();
        let cluster = Arc::new(Self { address, settings, map: RwLock::new(map), doubts });
        let looked_up = async {
            while let Err(why) = cluster.look_up().await {
                tracing::warn!("no cluster yet: {why}");
                tokio::time::sleep(LOOK_UP_MIN).await;
            }
        };
        // Who has waited long enough finds it down.
        let _ = tokio::time::timeout(patience, looked_up).await;
        tokio::spawn(survey(Arc::downgrade(&cluster)));
        cluster
    }

    /// What is known may be wrong: it is looked up anew, soon.
    pub(super) fn doubt(&self) {
        self.doubts.notify_one();
    }

    /// The owner of a slot, as far as is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map.read().expect("nobody panics with it");
        let host = map.owners[usize::from(slot) % SLOTS].as_ref()?;
        map.nodes.get(host).cloned()
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.read().expect("nobody panics with it").nodes.values().cloned().collect()
    }

    /// How often primaries have been others than before, or other runs of them. It never goes back, and whoever takes the place of
    /// another counts: else who looks before and after would see the same.
    pub(super) fn changes(&self) -> u64 {
        let map = self.map.read().expect("nobody panics with it");
        map.gone + map.nodes.values().map(|node| node.changes()).sum::<u64>()
    }

    /// The node at an address, known or not.
    pub(super) fn node(&self, host: &Host) -> Arc<Node> {
        let known = self.map.read().expect("nobody panics with it").nodes.get(host).cloned();
        known.unwrap_or_else(|| self.meet(host))
    }

    fn meet(&self, host: &Host) -> Arc<Node> {
        let mut map = self.map.write().expect("nobody panics with it");
        let make = || {
            let primary = Primary::new(self.address.clone(), host.clone());
            Node::new(primary, self.settings.clone())
        };
        Arc::clone(map.nodes.entry(host.clone()).or_insert_with(make))
    }

    /// A slot has another owner.
    pub(super) fn moved(&self, slot: u16, host: &Host) -> Arc<Node> {
        let node = self.node(host);
        let mut map = self.map.write().expect("nobody panics with it");
        map.owners[usize::from(slot) % SLOTS] = Some(host.clone());
        node
    }

    /// Asks who owns what: those who are known first, then those of the address.
    async fn look_up(&self) -> Result<(), String> {
        let known: Vec<Host> = {
            let map = self.map.read().expect("nobody panics with it");
            map.nodes.keys().cloned().collect()
        };
        let mut why = "the address has no hosts".to_owned();
        for host in known.iter().chain(&self.address.hosts) {
            let asked = tokio::time::timeout(PATIENCE, ask(&self.address, host)).await;
            match asked {
                Ok(Ok(ranges)) => {
                    self.adopt(&ranges);
                    return Ok(());
                }
                Ok(Err(error)) => why = format!("{host}: {error}"),
                Err(_) => why = format!("{host} did not answer within {PATIENCE:?}"),
            }
        }
        Err(why)
    }

    fn adopt(&self, ranges: &[Range]) {
        for range in ranges {
            self.node(&range.owner);
        }
        let mut map = self.map.write().expect("nobody panics with it");
        for range in ranges {
            for slot in range.first..=range.last.min(SLOTS - 1) {
                map.owners[slot] = Some(range.owner.clone());
            }
        }
        // Who owns nothing any more is not kept.
        let owners: std::collections::HashSet<Host> =
            map.owners.iter().flatten().cloned().collect();
        let Map { nodes, gone, .. } = &mut *map;
        nodes.retain(|host, node| {
            let stays = owners.contains(host);
            if !stays {
                *gone += node.changes() + 1;
            }
            stays
        });
    }
}

/// Looks it up when somebody doubts it, and now and then.
async fn survey(cluster: Weak<Cluster>) {
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        let _ = tokio::time::timeout(LOOK_UP_MAX, strong.doubts.notified()).await;
        if let Err(why) = strong.look_up().await {
            tracing::debug!("the cluster cannot be looked up: {why}");
        }
        drop(strong);
        tokio::time::sleep(random::between(LOOK_UP_MIN / 2, LOOK_UP_MIN)).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: usize,
    last: usize,
    owner: Host,
}

async fn ask(address: &Address, host: &Host) -> Result<Vec<Range>, String> {
    let client = client(address, host).map_err(|error| error.to_string())?;
    let connected = client.get_multiplexed_async_connection().await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answer = question.query_async::<Value>(&mut connection).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let ranges = read(&answer, host).ok_or("its CLUSTER SLOTS cannot be read")?;
    if ranges.is_empty() {
        return Err("it knows of no slots yet".to_owned());
    }
    Ok(ranges)
}

/// `[[first, last, [host, port, id], replicas…]…]`. An owner without a host is who was asked.
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

/// The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it.
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
    fn who_owns_what_is_read_as_the_server_says_it() {
        let text = b"*1\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:30001\r\n$2\r\nid\r\n";
        let answer = redis::parse_redis_value(text).expect("it is a reply");
        let asked = Host { name: "asked".to_owned(), port: 1 };
        let owner = Host { name: "127.0.0.1".to_owned(), port: 30_001 };
        assert_eq!(read(&answer, &asked), Some(vec![Range { first: 0, last: 5460, owner }]));
        assert_eq!(read(&Value::Int(1), &asked), None);
    }

    /// Nobody is at these addresses: who is there does not matter for who owns what.
    #[tokio::test]
    async fn a_primary_in_the_place_of_another_is_a_change_that_stays() {
        let host = |port| Host { name: "127.0.0.1".to_owned(), port };
        let whole = |port| [Range { first: 0, last: SLOTS - 1, owner: host(port) }];
        let address: Address = "redis+cluster://127.0.0.1:1".parse().expect("it is good");
        let map = Map { nodes: HashMap::new(), owners: vec![None; SLOTS], gone: 0 };
        let (settings, doubts) = (Settings::default(), Notify::new());
        let cluster = Cluster { address, settings, map: RwLock::new(map), doubts };
        cluster.adopt(&whole(1));
        let mut before = cluster.changes();
        for port in [2, 3, 2] {
            cluster.adopt(&whole(port));
            assert_eq!(cluster.nodes().len(), 1, "who owns nothing is not kept");
            assert!(cluster.changes() > before, "nobody has seen it");
            before = cluster.changes();
        }
        cluster.adopt(&whole(2));
        assert_eq!(cluster.changes(), before, "nothing has changed");
    }
}
