//! Finds problems of a server that an operator should know about before they cause harm.
//!
//! Invariant  The examination has its own connection, so it also examines a server that is not used because it is a replica
//!            or refuses access. It writes one key of ours, which expires a moment later.
//! Invariant  It only runs commands that limits need too.

use super::error;
use super::node::Node;
use crate::script::{self, Script};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use std::fmt;
use std::time::Duration;

/// Timeout of each answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The oldest supported release of Redis.
const OLDEST: (u32, u32) = (6, 2);

/// A problem of a server that an operator should know about.
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) {
/// for problem in store.examine().await {
///     println!("{}: {}", problem.address, problem.text);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerProblem {
    /// The address of the server.
    pub address: String,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The problem, and what can be done about it.
    pub text: String,
}

/// The kind of a [`ServerProblem`].
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) {
/// use tidegate_redis::ProblemKind;
///
/// // A full Redis would evict keys, and with them their debts: do not start.
/// if store.examine().await.iter().any(|it| it.kind == ProblemKind::Evicts) {
///     std::process::exit(1);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The server does not answer.
    Unreachable,
    /// The server evicts keys when its memory is full, which forgives their debts.
    Evicts,
    /// The server is older than the oldest supported release.
    TooOld,
    /// The server refuses a command that limits need.
    Refuses,
    /// The server is a replica, which cannot hold limits.
    Replica,
}

impl ServerProblem {
    /// Returns the problem of a cluster whose nodes are not known.
    pub(super) fn unknown_cluster() -> Self {
        let text = "no node has reported its slots (CLUSTER SLOTS)".to_owned();
        Self { address: "cluster".to_owned(), kind: ProblemKind::Unreachable, text }
    }
}

impl fmt::Display for ServerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.text)
    }
}

/// Returns the problems of the server of this node.
pub(super) async fn examine(node: &Node, key: &[u8]) -> Vec<ServerProblem> {
    let found = match connect(node).await {
        Ok(mut connection) => {
            let mut found = read_info(&mut connection).await;
            // A replica refuses writes, which is correct.
            if !found.iter().any(|(kind, _)| *kind == ProblemKind::Replica) {
                found.extend(try_commands(&mut connection, key).await);
            }
            found
        }
        Err(why) => vec![(ProblemKind::Unreachable, why)],
    };
    let address = node.address();
    let problem = |(kind, text)| ServerProblem { address: address.clone(), kind, text };
    found.into_iter().map(problem).collect()
}

async fn connect(node: &Node) -> Result<MultiplexedConnection, String> {
    let client = node.primary.find().await?;
    match tokio::time::timeout(TIMEOUT, client.get_multiplexed_async_connection()).await {
        Ok(connected) => connected.map_err(|error| error::redis_message(&error)),
        Err(_) => Err(format!("no connection within {TIMEOUT:?}")),
    }
}

async fn send(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, Refusal> {
    match tokio::time::timeout(TIMEOUT, connection.send_packed_command(command)).await {
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

    /// Returns the problem that this refusal shows.
    fn problem(&self, command: &str) -> (ProblemKind, String) {
        match self {
            Self::Error(error) => (
                ProblemKind::Refuses,
                format!("it refuses {command}: {}", error::redis_message(error)),
            ),
            Self::Silence => {
                (ProblemKind::Unreachable, format!("no answer to {command} within {TIMEOUT:?}"))
            }
        }
    }
}

async fn read_info(connection: &mut MultiplexedConnection) -> Vec<(ProblemKind, String)> {
    let answer = send(connection, &redis::cmd("INFO")).await;
    match answer.map(redis::from_redis_value::<String>) {
        Ok(Ok(info)) => read(&info),
        Ok(Err(error)) => vec![(ProblemKind::Refuses, format!("its INFO cannot be read: {error}"))],
        Err(refusal) => vec![refusal.problem("INFO")],
    }
}

fn read(info: &str) -> Vec<(ProblemKind, String)> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    };
    let mut found = Vec::new();
    if field("role") == "slave" {
        found.push((
            ProblemKind::Replica,
            "it is a replica: configure the address of its primary".to_owned(),
        ));
    }
    let version = field("redis_version");
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    if let (Some(major), Some(minor)) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        let text = format!("Redis {version} is older than {}.{}", OLDEST.0, OLDEST.1);
        found.push((ProblemKind::TooOld, text));
    }
    let policy = field("maxmemory_policy");
    if !policy.is_empty() && policy != "noeviction" {
        let when = match field("maxmemory") {
            "0" | "" => "if maxmemory is ever set".to_owned(),
            bytes => format!("once it has used {bytes} bytes"),
        };
        let text = format!(
            "{when}, it evicts keys (maxmemory-policy {policy}), and an evicted key starts over with its full limit: set \
             maxmemory-policy noeviction"
        );
        found.push((ProblemKind::Evicts, text));
    }
    found
}

async fn try_commands(
    connection: &mut MultiplexedConnection,
    key: &[u8],
) -> Vec<(ProblemKind, String)> {
    let script: &Script = &script::EXAMINE;
    let mut found = Vec::new();
    if let Err(refusal) = send(connection, &redis::cmd("PING")).await {
        found.push(refusal.problem("PING"));
    }
    let by = |verb: &str, script: &str| redis::cmd(verb).arg(script).arg(1).arg(key).to_owned();
    if let Err(refusal) = send(connection, &by("EVALSHA", script.hash())).await
        && !refusal.is_unknown_script()
    {
        found.push(refusal.problem("EVALSHA"));
    }
    match send(connection, &by("EVAL", script.text())).await {
        Ok(refused) => {
            let each = redis::from_redis_value::<Vec<String>>(refused).unwrap_or_default();
            found
                .extend(each.iter().map(|why| (ProblemKind::Refuses, format!("it refuses {why}"))));
        }
        Err(refusal) => found.push(refusal.problem("EVAL")),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(info: &str) -> Vec<ProblemKind> {
        read(info).into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn problems_are_read_from_info() {
        let well =
            "redis_version:6.2.0\r\nrole:master\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction";
        assert_eq!(kinds(well), []);
        assert_eq!(kinds(&well.replace("6.2.0", "6.0.16")), [ProblemKind::TooOld]);
        assert_eq!(kinds(&well.replace("6.2.0", "10.0.0")), []);
        assert_eq!(kinds(&well.replace("master", "slave")), [ProblemKind::Replica]);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(
                kinds(&well.replace("noeviction", policy)),
                [ProblemKind::Evicts],
                "{policy}"
            );
        }
        assert_eq!(kinds(""), [], "an empty INFO shows no problem");
    }

    #[test]
    fn a_server_without_a_memory_limit_evicts_later() {
        let now = read("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n");
        let later = read("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert!(now[0].1.starts_with("once it has used 1000 bytes"), "{now:?}");
        assert!(later[0].1.starts_with("if maxmemory is ever set"), "{later:?}");
    }
}
