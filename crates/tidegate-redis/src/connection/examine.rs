//! What an operator should know about a server before it hurts.
//!
//! Always   By a connection of its own: a server that is not used, because it is a replica or does not let us in,
//!          is examined too. Nothing is changed but a key of ours that is gone a moment later.
//!          No command is asked for that the limits do not need themselves.

use super::error;
use super::node::Node;
use crate::script::{self, Script};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use std::fmt;
use std::time::Duration;

/// For each answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The first release whose scripts are as ours need them, among those that are still cared for.
const OLDEST: (u32, u32) = (6, 2);

/// Something about a server that an operator should know.
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) {
/// for finding in store.examine().await {
///     println!("{}: {}", finding.address, finding.text);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Which server.
    pub address: String,
    /// What kind of thing.
    pub concern: Concern,
    /// What, and what can be done about it.
    pub text: String,
}

/// What kind of thing an operator should know.
///
/// ```
/// assert_ne!(tidegate_redis::Concern::Evicts, tidegate_redis::Concern::Replica);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// It cannot be asked.
    Unreachable,
    /// It throws keys away when its memory is full, and with them what was charged.
    Evicts,
    /// It is older than what this is tested with.
    TooOld,
    /// It refuses a command that limits need.
    Refuses,
    /// It is a replica: limits are not kept there.
    Replica,
}

impl Finding {
    /// Nobody of a cluster has said who belongs to it.
    pub(super) fn unknown_cluster() -> Self {
        let text = "no node says who owns what (CLUSTER SLOTS)".to_owned();
        Self { address: "cluster".to_owned(), concern: Concern::Unreachable, text }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.text)
    }
}

/// What there is to know about the server of this node.
pub(super) async fn examine(node: &Node, key: &[u8]) -> Vec<Finding> {
    let found = match connect(node).await {
        Ok(mut connection) => {
            let mut found = read_info(&mut connection).await;
            // A replica refuses what it should refuse.
            if !found.iter().any(|(concern, _)| *concern == Concern::Replica) {
                found.extend(try_commands(&mut connection, key).await);
            }
            found
        }
        Err(why) => vec![(Concern::Unreachable, why)],
    };
    let address = node.address();
    let finding = |(concern, text)| Finding { address: address.clone(), concern, text };
    found.into_iter().map(finding).collect()
}

async fn connect(node: &Node) -> Result<MultiplexedConnection, String> {
    let client = node.primary.find().await?;
    match tokio::time::timeout(PATIENCE, client.get_multiplexed_async_connection()).await {
        Ok(connected) => connected.map_err(|error| error::words(&error)),
        Err(_) => Err(format!("no connection within {PATIENCE:?}")),
    }
}

async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, Refusal> {
    match tokio::time::timeout(PATIENCE, connection.send_packed_command(command)).await {
        Ok(answer) => answer.and_then(Value::extract_error).map_err(Refusal::Error),
        Err(_) => Err(Refusal::Silence),
    }
}

enum Refusal {
    Error(RedisError),
    Silence,
}

impl Refusal {
    fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Error(error) if error.code() == Some("NOSCRIPT"))
    }

    /// What it means that a command was not answered as it should be.
    fn found(&self, command: &str) -> (Concern, String) {
        match self {
            Self::Error(error) => {
                (Concern::Refuses, format!("it refuses {command}: {}", error::words(error)))
            }
            Self::Silence => {
                (Concern::Unreachable, format!("no answer to {command} within {PATIENCE:?}"))
            }
        }
    }
}

async fn read_info(connection: &mut MultiplexedConnection) -> Vec<(Concern, String)> {
    let told = ask(connection, &redis::cmd("INFO")).await;
    match told.map(redis::from_redis_value::<String>) {
        Ok(Ok(info)) => read(&info),
        Ok(Err(error)) => vec![(Concern::Refuses, format!("its INFO cannot be read: {error}"))],
        Err(refusal) => vec![refusal.found("INFO")],
    }
}

fn read(info: &str) -> Vec<(Concern, String)> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    };
    let mut found = Vec::new();
    if field("role") == "slave" {
        found.push((
            Concern::Replica,
            "it is a replica: give the address of its primary".to_owned(),
        ));
    }
    let version = field("redis_version");
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    if let (Some(major), Some(minor)) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        let text = format!("Redis {version} is older than {}.{}", OLDEST.0, OLDEST.1);
        found.push((Concern::TooOld, text));
    }
    let policy = field("maxmemory_policy");
    if !policy.is_empty() && policy != "noeviction" {
        let when = match field("maxmemory") {
            "0" | "" => "if it is ever given a maxmemory".to_owned(),
            bytes => format!("once it has used {bytes} bytes"),
        };
        let text = format!(
            "{when}, it throws keys away (maxmemory-policy {policy}), and whose key is gone starts over with a full \
             limit: set maxmemory-policy noeviction"
        );
        found.push((Concern::Evicts, text));
    }
    found
}

async fn try_commands(
    connection: &mut MultiplexedConnection,
    key: &[u8],
) -> Vec<(Concern, String)> {
    let script: &Script = script::examine();
    let mut found = Vec::new();
    if let Err(refusal) = ask(connection, &redis::cmd("PING")).await {
        found.push(refusal.found("PING"));
    }
    let by = |verb: &str, script: &str| redis::cmd(verb).arg(script).arg(1).arg(key).to_owned();
    if let Err(refusal) = ask(connection, &by("EVALSHA", script.hash())).await
        && !refusal.is_unknown_script()
    {
        found.push(refusal.found("EVALSHA"));
    }
    match ask(connection, &by("EVAL", script.text())).await {
        Ok(said) => {
            let each = redis::from_redis_value::<Vec<String>>(said).unwrap_or_default();
            found.extend(each.iter().map(|why| (Concern::Refuses, format!("it refuses {why}"))));
        }
        Err(refusal) => found.push(refusal.found("EVAL")),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(info: &str) -> Vec<Concern> {
        read(info).into_iter().map(|(concern, _)| concern).collect()
    }

    #[test]
    fn t34_what_info_says_is_read() {
        let well =
            "redis_version:6.2.0\r\nrole:master\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction";
        assert_eq!(concerns(well), []);
        assert_eq!(concerns(&well.replace("6.2.0", "6.0.16")), [Concern::TooOld]);
        assert_eq!(concerns(&well.replace("6.2.0", "10.0.0")), []);
        assert_eq!(concerns(&well.replace("master", "slave")), [Concern::Replica]);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(
                concerns(&well.replace("noeviction", policy)),
                [Concern::Evicts],
                "{policy}"
            );
        }
        assert_eq!(concerns(""), [], "nothing is known, and so nothing is wrong");
    }

    #[test]
    fn t34_a_server_that_would_throw_away_later_is_told_apart() {
        let now = read("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n");
        let later = read("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert!(now[0].1.starts_with("once it has used 1000 bytes"), "{now:?}");
        assert!(later[0].1.starts_with("if it is ever given a maxmemory"), "{later:?}");
    }
}
