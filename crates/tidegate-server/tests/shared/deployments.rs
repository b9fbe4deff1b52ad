//! Limits shared through each kind of Redis deployment, and the operator's view of it.

use crate::harness::Harness;
use std::time::Duration;
use tidegate_testbed::{Cluster, RedisServer, Sentinels};

const LIMITS: &str = "[limits.three]\nrule = \"3/day burst 3\"\non_error = \"deny\"\n";
/// An election takes some seconds, and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns whether `TIDE.CHECK` allows this key.
async fn resp(harness: &mut Harness, key: &str) -> bool {
    let said = harness.say(&[&format!("TIDE.CHECK three {key}")]).await;
    assert!(said.starts_with("*5 "), "{said}");
    said.starts_with("*5 :1 ")
}

/// Returns whether `POST /v1/check` allows this key.
async fn http(harness: &Harness, key: &str) -> bool {
    let body = format!(r#"{{"limit":"three","key":"{key}"}}"#);
    let (status, body) = harness.post("/v1/check", &body).await;
    assert!(status == 200 || status == 429, "{status}: {body}");
    body.contains(r#""allow":true"#)
}

/// Asserts that two servers together admit three requests of a key over RESP and HTTP, and no more.
async fn assert_shared(harnesses: &mut [Harness; 2], key: &str) {
    let [one, other] = harnesses;
    assert!(resp(one, key).await && http(other, key).await && resp(other, key).await, "{key}");
    assert!(!http(one, key).await && !resp(one, key).await, "{key}");
    assert!(!http(other, key).await && !resp(other, key).await, "{key}");
}

async fn harnesses(url: &str) -> [Harness; 2] {
    [Harness::new(url, LIMITS).await, Harness::new(url, LIMITS).await]
}

/// Returns the number of Redis servers that `/readyz?verbose` reports as answering.
async fn answering(harness: &Harness) -> usize {
    let (_, body) = harness.admin("/readyz?verbose").await;
    body.lines().filter(|line| line.starts_with("[+] the store at ")).count()
}

async fn becomes(harness: &Harness, word: &str) {
    let noticed = async {
        while harness.admin("/readyz").await.1 != word {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, noticed).await;
    in_time.unwrap_or_else(|_| panic!("the status is never {word}"));
}

#[tokio::test]
async fn limits_are_shared_through_a_server_with_tls_and_a_password() {
    let user = "user limiter on >secret ~* +@all";
    let redis = RedisServer::builder().acl(user).acl("user default off").tls().start();
    let at = |who: &str| {
        format!("rediss://{who}localhost:{}?ca={}", redis.port(), redis.ca_path().display())
    };
    let mut harnesses = harnesses(&at("limiter:secret@")).await;
    becomes(&harnesses[0], "ok\n").await;
    assert_shared(&mut harnesses, "alice").await;
    assert_eq!(answering(&harnesses[0]).await, 1);
    // A server without the password reports the error and denies.
    let anonymous = Harness::new(&at(""), LIMITS).await;
    assert_eq!(anonymous.admin("/readyz").await, (503, "denying\n".to_owned()));
    let (_, body) = anonymous.admin("/readyz?verbose").await;
    assert!(body.contains("[!] the store at localhost:"), "{body}");
    assert!(!http(&anonymous, "bob").await);
}

#[tokio::test]
async fn limits_are_shared_through_sentinels_and_a_new_primary_is_found() {
    let sentinels = Sentinels::start();
    let hosts: Vec<String> =
        sentinels.sentinel_addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name());
    let mut harnesses = harnesses(&url).await;
    becomes(&harnesses[0], "ok\n").await;
    assert_shared(&mut harnesses, "alice").await;
    let assert_reported = async |harness: &Harness, primary: String| {
        let (_, body) = harness.admin("/readyz?verbose").await;
        assert!(body.contains(&format!("[+] the store at {primary} answers")), "{body}");
    };
    assert_reported(&harnesses[0], sentinels.primary().address().to_string()).await;
    sentinels.kill_primary();
    becomes(&harnesses[0], "denying\n").await;
    let primary = sentinels.wait_for_new_primary(PATIENCE);
    for harness in &harnesses {
        becomes(harness, "ok\n").await;
    }
    assert_reported(&harnesses[0], primary.address().to_string()).await;
    assert_shared(&mut harnesses, "bob").await;
}

#[tokio::test]
async fn limits_are_shared_through_a_cluster_and_the_loss_of_one_primary_is_reported() {
    let cluster = Cluster::start();
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let mut harnesses = harnesses(&format!("redis+cluster://{}", hosts.join(","))).await;
    becomes(&harnesses[0], "ok\n").await;
    assert_eq!(answering(&harnesses[0]).await, 3);
    for number in 0..12 {
        assert_shared(&mut harnesses, &format!("alice-{number}")).await;
    }
    cluster.kill_primary_of_slot(cluster.slot_of("tg:{bob}:three"));
    becomes(&harnesses[0], "degraded\n").await;
    assert_eq!(answering(&harnesses[0]).await, 2);
    cluster.wait_until_ok(PATIENCE);
    for harness in &harnesses {
        becomes(harness, "ok\n").await;
    }
    assert_shared(&mut harnesses, "bob").await;
}

/// A new server gets no lease at first; afterwards one lease decides many requests.
#[tokio::test]
async fn with_leases_hot_keys_are_decided_locally_within_the_rule() {
    let redis = RedisServer::start();
    let limits = "lease = true\n[limits.hot]\nrule = \"1/day burst 600\"\n";
    let mut harnesses =
        [Harness::new(&redis.url(), limits).await, Harness::new(&redis.url(), limits).await];
    let leases = |key: &str| redis.command(&["ZCARD", &format!("tg:{{{key}}}:hot#leases")]).text();
    for (place, harness) in harnesses.iter_mut().enumerate() {
        let lends = async {
            for number in 0.. {
                let key = format!("other-{place}-{number}");
                harness.say(&[&format!("TIDE.CHECK hot {key}")]).await;
                if leases(&key) == "1" {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, lends).await.expect("the server never gets a lease");
    }
    let asked = scripts(&redis);
    let mut passed = 0;
    for turn in 0..1_000 {
        let said = harnesses[turn % 2].say(&["TIDE.CHECK hot alice"]).await;
        passed += u64::from(said.starts_with("*5 :1 "));
    }
    // Half of the limit is for leases, and the unused part of a lease is lost when it ends.
    assert!((250..=600).contains(&passed), "{passed}");
    let asked = scripts(&redis) - asked;
    assert!(asked < passed, "{asked} scripts for {passed} admitted requests");
    assert_eq!(harnesses[0].admin("/readyz").await, (200, "ok\n".to_owned()));
}

/// Returns the number of scripts that Redis has run.
fn scripts(redis: &RedisServer) -> u64 {
    let calls = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
        rest.split(',').next()?.parse().ok()
    };
    let info = redis.command(&["INFO", "commandstats"]).text();
    info.lines().filter_map(calls).sum()
}
