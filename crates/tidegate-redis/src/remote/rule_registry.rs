//! The registry of rules in Redis, so that all nodes that share a limit use one rule (B8).
//!
//! Invariant  Every rule has a version, and every state the version of its rule. A node that reads a state of an older rule
//!            converts it, and a node that reads a state of a newer rule adopts that rule first.
//! Invariant  The registry outlives every state of its rules: a state whose rule is unknown counts as exhausted.
//! Bound      64 versions (`register.lua`): states of older versions count as exhausted.

use crate::connection::{Deadline, RedisStoreError, ScriptRunner};
use crate::script;
use crate::script::codec::LimitCodec;
use crate::script::stored_value;
use redis::Value;
use std::collections::BTreeMap;
use tidegate::{Rule, RuleError};
use tidegate_core::{LeaseTerms, Timestamp};

/// The rule of a limit in Redis.
#[derive(Debug)]
pub(crate) struct CurrentRule {
    /// The rule that the user wrote.
    pub(crate) rule: Rule,
    /// The terms of leases, if the limit has leases.
    pub(crate) lending: Option<LeaseTerms>,
    pub(crate) version: u64,
    /// The codec of the rule that scripts enforce: the user's, or the part of it that leases leave.
    pub(crate) codec: LimitCodec,
    /// The rules that scripts enforced before, by version.
    pub(crate) before: BTreeMap<u64, Rule>,
}

impl CurrentRule {
    /// Returns the codec for an earlier version, if its rule is known.
    pub(crate) fn codec_before(&self, version: u64) -> Option<LimitCodec> {
        let rule = self.before.get(&version)?;
        self.codec.of_version(rule.limit().clone(), version).ok()
    }
}

/// A rule that a node sends to the registry.
#[derive(Debug)]
pub(crate) struct PublishedRule<'a> {
    pub(crate) rule: &'a Rule,
    /// Whether the limit has leases, if its rule allows them.
    pub(crate) has_leases: bool,
    /// The version that the node uses; 0 if it knows none.
    pub(crate) version: u64,
}

/// The prefix of a rule with leases in the registry.
const LENT: &str = "lent ";

/// Returns the text of a rule in the registry.
fn text(rule: &Rule, has_leases: bool) -> String {
    if has_leases && rule.limit().rule().lease_terms().is_some() {
        format!("{LENT}{rule}")
    } else {
        rule.to_string()
    }
}

/// Parses a text of the registry.
fn parse(text: &str) -> Result<(Rule, Option<LeaseTerms>), RuleError> {
    match text.strip_prefix(LENT) {
        Some(text) => text.parse().map(|rule: Rule| {
            let lending = rule.limit().rule().lease_terms();
            (rule, lending)
        }),
        None => Ok((text.parse()?, None)),
    }
}

/// Returns the rule that scripts enforce.
fn enforced(rule: &Rule, lending: Option<&LeaseTerms>) -> Rule {
    let Some(lending) = lending else { return rule.clone() };
    lending.rule.to_string().parse().expect("a rule with a smaller burst is valid too")
}

/// A request to the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegistryRequest {
    /// Reads the rule. The registry adopts the node's rule only if it has lost it.
    Read,
    /// Replaces the rule.
    Publish,
}

/// Sends a request to the registry.
pub(crate) async fn request(
    runner: &ScriptRunner,
    name: &str,
    published: &PublishedRule<'_>,
    request: RegistryRequest,
    deadline: Deadline,
) -> Result<CurrentRule, RedisStoreError> {
    let key = format!("{}rule:{name}", runner.settings.prefix).into_bytes();
    let publish = if request == RegistryRequest::Publish { "1" } else { "0" };
    let lives = stored_value::longest_life(published.rule, runner.clock.estimate());
    let lives_ms = lives.as_micros().div_ceil(1_000);
    let args = [
        text(published.rule, published.has_leases),
        published.version.to_string(),
        publish.to_owned(),
        lives_ms.to_string(),
    ];
    let args = args.map(String::into_bytes).to_vec();
    let value = runner.run(&script::REGISTER, vec![key], args, deadline).await?;
    read(&value).map_err(|what| runner.malformed(what))
}

fn read(value: &Value) -> Result<CurrentRule, String> {
    let unexpected = || format!("{value:?} for the rule of a limit");
    let Value::Array(parts) = value else { return Err(unexpected()) };
    let [Value::Int(version), Value::Int(born), texts @ ..] = parts.as_slice() else {
        return Err(unexpected());
    };
    let number = |integer: i64| u64::try_from(integer).map_err(|_| unexpected());
    let (version, born) = (number(*version)?, Timestamp::from_micros(number(*born)?));
    let (mut rules, mut before) = (BTreeMap::new(), BTreeMap::new());
    for pair in texts.as_chunks::<2>().0 {
        let [Value::Int(version), Value::BulkString(text)] = pair else { return Err(unexpected()) };
        let text = str::from_utf8(text).map_err(|_| unexpected())?;
        let known = parse(text).map_err(|error| format!("`{text}` for a rule: {error}"))?;
        before.insert(number(*version)?, enforced(&known.0, known.1.as_ref()));
        rules.insert(number(*version)?, known);
    }
    let (rule, lending) = rules.remove(&version).ok_or_else(unexpected)?;
    let enforced_rule = before.remove(&version).ok_or_else(unexpected)?;
    let codec = LimitCodec::new(enforced_rule.limit().clone(), version, born)
        .map_err(|error| format!("`{rule}` for a rule: {error}"))?;
    Ok(CurrentRule { rule, lending, version, codec, before })
}

#[cfg(test)]
mod tests {
    use crate::{RedisLimiter, RedisStore, Settings};
    use std::time::Duration;
    use tidegate_testbed::{RedisServer, Reply};

    const KEY: &str = "tg:rule:limit";
    /// As in `register.lua`.
    const VERSIONS_MAX: u64 = 64;
    const ONE: &str = "10/h";
    const TWO: &str = "20/h";

    async fn limiter(server: &RedisServer, rule: &str) -> RedisLimiter {
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(Duration::from_secs(20));
        let store = RedisStore::connect_with(&address, settings).await;
        let limiter = store.limiter("limit", rule.parse().expect("it is a rule"));
        let limiter = limiter.expect("Redis can keep it");
        limiter.ready().await.expect("Redis is there");
        limiter
    }

    async fn change(limiter: &RedisLimiter, rule: &str) -> u64 {
        let rule = rule.parse().expect("it is a rule");
        limiter.set_rule(rule).await.expect("Redis is there");
        limiter.inner.remote.version()
    }

    /// Returns the text of this version in the registry.
    fn stored(server: &RedisServer, version: u64) -> String {
        server.command(&["HGET", KEY, &version.to_string()]).text()
    }

    #[tokio::test]
    async fn a_node_restores_the_rule_it_uses_and_not_the_one_it_was_configured_with() {
        let server = RedisServer::start();
        let (first, other) = (limiter(&server, ONE).await, limiter(&server, ONE).await);
        let version = change(&other, TWO).await;
        first.inner.refresh_rule().await;
        assert_eq!(first.rule().to_string(), TWO);
        drop(other);
        server.command(&["FLUSHALL"]);
        first.inner.refresh_rule().await;
        assert_eq!(stored(&server, version), TWO);
    }

    /// Otherwise nodes that do not know the rule would count every state of it as exhausted.
    #[tokio::test]
    async fn a_rule_that_a_failover_has_lost_is_restored_by_a_node_that_uses_it() {
        let server = RedisServer::start();
        let (first, other) = (limiter(&server, ONE).await, limiter(&server, ONE).await);
        let before = first.inner.remote.version().to_string();
        let version = change(&other, TWO).await;
        // The registry of a replica that lagged behind.
        server.command(&["HSET", KEY, "version", &before]);
        server.command(&["HDEL", KEY, &version.to_string()]);
        other.inner.refresh_rule().await;
        first.inner.refresh_rule().await;
        assert_eq!(
            (first.rule().to_string().as_str(), first.inner.remote.version()),
            (TWO, version)
        );
        assert!(other.check_n("key", 15).await.is_allow());
        assert!(first.check_n("key", 5).await.is_allow());
    }

    #[tokio::test]
    async fn states_of_a_lost_rule_are_converted_to_its_successor() {
        let server = RedisServer::start();
        let limiter = limiter(&server, ONE).await;
        let before = limiter.inner.remote.version().to_string();
        let lost = change(&limiter, TWO).await;
        assert!(limiter.check("key").await.is_allow());
        server.command(&["HSET", KEY, "version", &before]);
        server.command(&["HDEL", KEY, &lost.to_string()]);
        assert!(change(&limiter, "30/h burst 30").await > lost);
        assert!(limiter.check("key").await.is_allow(), "the debt is known");
    }

    fn lives(server: &RedisServer) -> Duration {
        let Reply::Integer(ms) = server.command(&["PTTL", KEY]) else { panic!("it is a number") };
        Duration::from_millis(ms.try_into().expect("it has an end"))
    }

    /// A client that returns after a month is not locked out for a year.
    #[tokio::test]
    async fn a_rule_is_stored_for_as_long_as_its_states() {
        const DAY: Duration = Duration::from_secs(86_400);
        let server = RedisServer::start();
        let limiter = limiter(&server, ONE).await;
        assert!((6 * DAY..=7 * DAY).contains(&lives(&server)));
        change(&limiter, "1/400day").await;
        assert!((400 * DAY..=402 * DAY).contains(&lives(&server)), "{:?}", lives(&server));
        change(&limiter, ONE).await;
        assert!(lives(&server) > 399 * DAY, "states of the rule before may live as long");
    }

    #[tokio::test]
    async fn states_of_more_than_64_versions_ago_count_as_exhausted() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "100/h burst 100").await;
        assert!(limiter.check("known").await.is_allow() && limiter.check("older").await.is_allow());
        for number in 1..VERSIONS_MAX {
            change(&limiter, &format!("100/h burst {}", 100 + number)).await;
        }
        assert_eq!(
            limiter.inner.remote.loaded_rule().expect("it is loaded").before.len() + 1,
            64,
            "all of them"
        );
        assert!(limiter.check("known").await.is_allow());
        change(&limiter, ONE).await;
        assert!(limiter.check("older").await.is_deny());
    }

    /// Permits are rows that can be read without the rule.
    #[tokio::test]
    async fn permits_of_an_older_version_stay_held() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "concurrency 2").await;
        let held = limiter.request("key").cost(2).try_acquire().await.expect("both are free");
        for number in 0..=VERSIONS_MAX {
            change(&limiter, &format!("concurrency {}", 2 + number % 2)).await;
        }
        change(&limiter, "concurrency 2").await;
        assert!(limiter.try_acquire("key").await.is_err(), "both are held");
        assert!(held.release().await.expect("it answers"), "and can be released");
        assert!(limiter.request("key").cost(2).try_acquire().await.is_ok());
    }

    #[tokio::test]
    async fn a_permit_of_a_rule_that_was_replaced_by_a_rate_is_not_held_any_more() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "concurrency 2").await;
        let held = limiter.try_acquire("key").await.expect("it is free");
        change(&limiter, "100/s burst 100").await;
        assert!(limiter.check("key").await.is_allow());
        assert!(!held.release().await.expect("Redis answers"));
    }

    #[tokio::test]
    async fn a_rule_that_is_published_after_a_loss_of_all_data_has_a_new_version() {
        let server = RedisServer::start();
        let limiter = limiter(&server, ONE).await;
        let before = limiter.inner.remote.version();
        server.command(&["FLUSHALL"]);
        let after = change(&limiter, TWO).await;
        assert!(after > before, "states of the two rules can be told apart");
        assert_eq!(stored(&server, after), TWO);
    }
}
