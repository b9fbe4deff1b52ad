//! T34: problems of a server that `examine` reports, and the permissions that a limiter needs.

use crate::cluster::address;
use crate::lifetime::RULES;
use crate::stage::{PATIENT, id, limiter, ready, store_at};
use tidegate_redis::{ProblemKind, RedisStore, ServerProblem, Settings};
use tidegate_testbed::{Cluster, RedisServer, Sentinels};

/// The permissions that a limiter needs. In a cluster it also needs [`CLUSTER_COMMANDS`].
const COMMANDS: [&str; 19] = [
    "ping",
    "info",
    "eval",
    "evalsha",
    "time",
    "get",
    "set",
    "getrange",
    "setrange",
    "pexpire",
    "del",
    "hget",
    "hset",
    "hgetall",
    "hdel",
    "zadd",
    "zrange",
    "zrem",
    "zremrangebyscore",
];
const CLUSTER_COMMANDS: [&str; 2] = ["cluster|slots", "asking"];

fn user(commands: &[&str]) -> String {
    let allowed: Vec<String> = commands.iter().map(|command| format!("+{command}")).collect();
    format!("user limiter on >secret ~tg:* resetchannels -@all {}", allowed.join(" "))
}

async fn patient(address: &str) -> RedisStore {
    store_at(address, Settings::default().deadline(PATIENT)).await
}

async fn kinds(address: &str) -> Vec<ProblemKind> {
    patient(address).await.examine().await.iter().map(|finding| finding.kind).collect()
}

fn of_limiter(server: &RedisServer) -> String {
    format!("redis://limiter:secret@{}", server.address())
}

/// Runs every operation of every algorithm.
async fn everything_works(store: &RedisStore) {
    for (number, rule) in RULES.iter().enumerate() {
        let limiter = limiter(store, &format!("all{number}"), rule);
        ready(&limiter).await;
        for _ in 0..3 {
            let _ = limiter.try_check("key", 1).await.expect("it may charge");
        }
        let _ = limiter.check_once("key", 1, id("id")).await;
        limiter.refund("key", 1).await.expect("it may give back");
        let _ = limiter.peek("key").await.expect("it may look");
        if limiter.rule().is_concurrency() {
            limiter.reset("key").await.expect("it may forget");
            let permit = limiter.try_acquire("key").await.expect("there is room");
            assert!(permit.release().await.expect("it may give back"));
        }
        limiter.set_rule("3/s sliding".parse().expect("a rule")).await.expect("it may change");
        let _ = limiter.try_check("key", 1).await.expect("it may take over");
        limiter.reset("key").await.expect("it may forget");
        assert_eq!(limiter.stats().failed, 0, "`{rule}`: {}", limiter.stats().last_failure);
    }
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_problems_has_none_reported() {
    let server = RedisServer::start();
    assert_eq!(patient(&server.url()).await.examine().await, []);
    let left = server.command(&["KEYS", "*"]);
    assert!(left.items().is_empty(), "{left:?}");
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_keys_is_reported() {
    let server = RedisServer::builder()
        .option("maxmemory", "100mb")
        .option("maxmemory-policy", "allkeys-lru")
        .start();
    let found: Vec<ServerProblem> = patient(&server.url()).await.examine().await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].kind, &found[0].address),
        (ProblemKind::Evicts, &server.address().to_string())
    );
    assert!(found[0].to_string().contains("noeviction"), "{}", found[0]);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(kinds(&server.url()).await, [ProblemKind::Evicts], "it could be given one");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(kinds(&server.url()).await, []);
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_a_full_server_and_a_missing_one_are_reported() {
    let server = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&server).start();
    assert_eq!(kinds(&replica.url()).await, [ProblemKind::Replica]);
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let found = patient(&server.url()).await.examine().await;
    assert!(
        !found.is_empty() && found.iter().all(|finding| finding.text.contains("OOM")),
        "{found:?}"
    );
    server.kill();
    assert_eq!(kinds(&server.url()).await, [ProblemKind::Unreachable]);
    let nowhere = server.url().replace("redis://", "redis+cluster://");
    assert_eq!(kinds(nowhere.trim_end_matches('/')).await, [ProblemKind::Unreachable]);
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_suffice_over_tls() {
    let server = RedisServer::builder().acl(&user(&COMMANDS)).acl("user default off").tls().start();
    let ca = server.ca_path();
    let address =
        format!("rediss://limiter:secret@localhost:{}?ca={}", server.port(), ca.display());
    let store = patient(&address).await;
    assert_eq!(store.examine().await, []);
    everything_works(&store).await;
    let intruder = patient(&address.replace("secret", "guess")).await;
    let found = intruder.examine().await;
    assert_eq!(
        found.iter().map(|finding| finding.kind).collect::<Vec<_>>(),
        [ProblemKind::Unreachable]
    );
    assert!(
        found[0].text.contains("authentication failed") && !found[0].text.contains("guess"),
        "{}",
        found[0]
    );
}

/// T34. Without any one of them a command is refused and reported, so all of them are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_missing_permission_is_reported() {
    let server = RedisServer::builder().acl(&user(&COMMANDS)).start();
    let store = patient(&of_limiter(&server)).await;
    for command in COMMANDS {
        let [without, with] = [format!("-{command}"), format!("+{command}")];
        server.command(&["ACL", "SETUSER", "limiter", &without]);
        let found = store.examine().await;
        server.command(&["ACL", "SETUSER", "limiter", &with]);
        let named = format!("it refuses {}:", command.to_uppercase());
        let is_named = found.iter().any(|finding| {
            finding.kind == ProblemKind::Refuses && finding.text.starts_with(&named)
        });
        assert!(is_named, "{command}: {found:?}");
    }
    server.command(&["ACL", "SETUSER", "limiter", "resetkeys", "~other:*"]);
    let found = store.examine().await;
    assert!(found.iter().all(|finding| finding.kind == ProblemKind::Refuses), "{found:?}");
    assert!(!found.is_empty(), "it may not touch our keys");
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_database_takes_one_more_permission() {
    let server = RedisServer::builder().acl(&user(&COMMANDS)).start();
    let third = format!("{}/3", of_limiter(&server));
    assert_eq!(kinds(&third).await, [ProblemKind::Unreachable]);
    server.command(&["ACL", "SETUSER", "limiter", "+select"]);
    let store = patient(&third).await;
    assert_eq!(store.examine().await, []);
    everything_works(&store).await;
    assert!(server.command(&["KEYS", "*"]).items().is_empty(), "they are in the third");
}

/// T34. Sentinels have their own users, which differ from those of the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_their_own_credentials() {
    let sentinels = Sentinels::with_replicas(0);
    for sentinel in sentinels.sentinels() {
        let watcher = "ACL SETUSER watcher on >p&ss -@all +sentinel|get-master-addr-by-name";
        sentinel.command(&watcher.split(' ').collect::<Vec<_>>());
        sentinel.command(&["ACL", "SETUSER", "default", "off"]);
    }
    let set_user = user(&COMMANDS).replace("user ", "ACL SETUSER ");
    sentinels.primary().command(&set_user.split(' ').collect::<Vec<_>>());
    let hosts: Vec<String> =
        sentinels.sentinel_addresses().iter().map(ToString::to_string).collect();
    let without =
        format!("redis+sentinel://limiter:secret@{}/{}", hosts.join(","), sentinels.master_name());
    let intruder = patient(&without).await;
    assert!(intruder.examine().await.iter().all(|it| it.kind == ProblemKind::Unreachable));
    let store = patient(&format!("{without}?sentinel=watcher:p%26ss")).await;
    assert_eq!(store.examine().await, []);
    everything_works(&store).await;
}

/// T34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_every_primary_is_examined_with_two_more_permissions() {
    let commands: Vec<&str> = COMMANDS.into_iter().chain(CLUSTER_COMMANDS).collect();
    let cluster = Cluster::start_as(&RedisServer::builder().acl(&user(&commands)));
    let address = address(&cluster).replace("://", "://limiter:secret@");
    let store = patient(&address).await;
    assert_eq!(store.examine().await, []);
    everything_works(&store).await;
    // Requests about a slot that moves need the second.
    let limiter = limiter(&store, "asked", "10/s");
    ready(&limiter).await;
    let _half_way = cluster.begin_migration(cluster.slot_of("tg:{key}:asked"));
    let _ = limiter.try_check("key", 1).await.expect("ASKING is permitted");
    for server in cluster.servers() {
        server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
        server.command(&["ACL", "SETUSER", "limiter", "-asking"]);
    }
    limiter.try_check("key", 1).await.expect_err("it may not any more");
    let found = store.examine().await;
    assert_eq!(found.iter().filter(|finding| finding.kind == ProblemKind::Evicts).count(), 3);
}
