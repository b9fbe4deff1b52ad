//! What rule a limit has, for all who share it (B8).
//!
//! Always   A rule has a version, and a state the version of its rule. Whoever finds a state of an older rule
//!          takes it over into the newer one, and whoever finds one of a newer rule learns that rule first: so all
//!          nodes go by one rule, whichever of them was told.
//! Always   The registry lives as long as there is a state of one of its rules: whose rule nobody knows is taken for used up.
//! Bound    64 versions (`register.lua`): states of older ones are taken for used up.

use crate::connection::{Deadline, StoreError};
use crate::script;
use crate::script::codec::Shared;
use crate::script::stored_value;
use crate::store::Inner;
use redis::Value;
use std::collections::BTreeMap;
use tidegate::{Rule, RuleError};
use tidegate_core::{LeaseTerms, Timestamp};

/// A limit's rule as all know it.
#[derive(Debug)]
pub(crate) struct Current {
    /// As users know it.
    pub(crate) rule: Rule,
    /// How it is lent out, if it is.
    pub(crate) lending: Option<LeaseTerms>,
    pub(crate) version: u64,
    /// What Redis goes by: the rule, or what is left of it when a part is lent out.
    pub(crate) shared: Shared,
    /// What Redis went by before, as far as it is known, by version.
    pub(crate) before: BTreeMap<u64, Rule>,
}

impl Current {
    /// What Redis went by in this version, if it is known.
    pub(crate) fn shared_before(&self, version: u64) -> Option<Shared> {
        let rule = self.before.get(&version)?;
        self.shared.of_version(rule.limit().clone(), version).ok()
    }
}

/// A rule as somebody goes by it, or wants all to.
#[derive(Debug)]
pub(crate) struct Published<'a> {
    pub(crate) rule: &'a Rule,
    /// Whether it is lent out, where it can be.
    pub(crate) is_lent: bool,
    /// The version that is gone by so far; 0 if none is.
    pub(crate) version: u64,
}

/// What stands before a rule that is lent out.
const LENT: &str = "lent ";

/// A rule as it stands in the registry.
fn text(rule: &Rule, is_lent: bool) -> String {
    if is_lent && rule.limit().rule().lease_terms().is_some() {
        format!("{LENT}{rule}")
    } else {
        rule.to_string()
    }
}

/// The rule that a text of the registry is about, and how it is lent out.
fn published(text: &str) -> Result<(Rule, Option<LeaseTerms>), RuleError> {
    match text.strip_prefix(LENT) {
        Some(text) => text.parse().map(|rule: Rule| {
            let lending = rule.limit().rule().lease_terms();
            (rule, lending)
        }),
        None => Ok((text.parse()?, None)),
    }
}

/// What Redis goes by.
fn effective(rule: &Rule, lending: Option<&LeaseTerms>) -> Rule {
    let Some(lending) = lending else { return rule.clone() };
    lending.rule.to_string().parse().expect("a rule with less room is a rule of the same zone")
}

/// What the registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// This is my rule, unless there is another.
    Have,
    /// This is the rule from now on.
    Publish,
}

/// Asks the registry about a limit.
pub(crate) async fn ask(
    store: &Inner,
    name: &str,
    told: &Published<'_>,
    question: Question,
    deadline: Deadline,
) -> Result<Current, StoreError> {
    let key = format!("{}rule:{name}", store.settings.prefix).into_bytes();
    let publish = if question == Question::Publish { "1" } else { "0" };
    let lives = stored_value::longest_life(told.rule, store.clock.about());
    let lives_ms = lives.as_micros().div_ceil(1_000);
    let args = [
        text(told.rule, told.is_lent),
        told.version.to_string(),
        publish.to_owned(),
        lives_ms.to_string(),
    ];
    let args = args.map(String::into_bytes).to_vec();
    let value = store.run(script::register(), vec![key], args, deadline).await?;
    let address = || store.link.nodes().first().map(|node| node.address()).unwrap_or_default();
    let malformed = |what: String| StoreError::Malformed { address: address(), what };
    read(&value).map_err(malformed)
}

fn read(value: &Value) -> Result<Current, String> {
    let strange = || format!("{value:?} for the rule of a limit");
    let Value::Array(parts) = value else { return Err(strange()) };
    let [Value::Int(version), Value::Int(born), texts @ ..] = parts.as_slice() else {
        return Err(strange());
    };
    let number = |integer: i64| u64::try_from(integer).map_err(|_| strange());
    let (version, born) = (number(*version)?, Timestamp::from_micros(number(*born)?));
    let (mut rules, mut before) = (BTreeMap::new(), BTreeMap::new());
    for pair in texts.as_chunks::<2>().0 {
        let [Value::Int(version), Value::BulkString(text)] = pair else { return Err(strange()) };
        let text = str::from_utf8(text).map_err(|_| strange())?;
        let known = published(text).map_err(|error| format!("`{text}` for a rule: {error}"))?;
        before.insert(number(*version)?, effective(&known.0, known.1.as_ref()));
        rules.insert(number(*version)?, known);
    }
    let (rule, lending) = rules.remove(&version).ok_or_else(strange)?;
    let goes_by = before.remove(&version).ok_or_else(strange)?;
    let shared = Shared::new(goes_by.limit().clone(), version, born)
        .map_err(|error| format!("`{rule}` for a rule: {error}"))?;
    Ok(Current { rule, lending, version, shared, before })
}

#[cfg(test)]
mod tests {
    use crate::{RedisLimiter, RedisStore, Settings};
    use std::time::Duration;
    use tidegate_testbed::{RedisServer, Reply};

    const KEY: &str = "tg:rule:limit";
    /// As `register.lua` has it.
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
        limiter.inner.exact.version()
    }

    /// What stands in the registry under this version.
    fn stored(server: &RedisServer, version: u64) -> String {
        server.command(&["HGET", KEY, &version.to_string()]).text()
    }

    #[tokio::test]
    async fn who_goes_by_anothers_rule_restores_that_and_not_its_own() {
        let server = RedisServer::start();
        let (first, other) = (limiter(&server, ONE).await, limiter(&server, ONE).await);
        let version = change(&other, TWO).await;
        first.inner.hear().await;
        assert_eq!(first.rule().to_string(), TWO);
        drop(other);
        server.command(&["FLUSHALL"]);
        first.inner.hear().await;
        assert_eq!(stored(&server, version), TWO);
    }

    /// Otherwise those who had not heard of it would take every state of it for used up, again and again.
    #[tokio::test]
    async fn a_rule_that_a_failover_has_lost_is_restored_by_who_goes_by_it() {
        let server = RedisServer::start();
        let (first, other) = (limiter(&server, ONE).await, limiter(&server, ONE).await);
        let before = first.inner.exact.version().to_string();
        let version = change(&other, TWO).await;
        // As a replica knows it that was behind.
        server.command(&["HSET", KEY, "version", &before]);
        server.command(&["HDEL", KEY, &version.to_string()]);
        other.inner.hear().await;
        first.inner.hear().await;
        assert_eq!(
            (first.rule().to_string().as_str(), first.inner.exact.version()),
            (TWO, version)
        );
        assert!(other.check_n("key", 15).await.is_allow());
        assert!(first.check_n("key", 5).await.is_allow());
    }

    #[tokio::test]
    async fn a_rule_that_takes_the_place_of_one_that_was_lost_takes_its_states_over() {
        let server = RedisServer::start();
        let limiter = limiter(&server, ONE).await;
        let before = limiter.inner.exact.version().to_string();
        let lost = change(&limiter, TWO).await;
        assert!(limiter.check("key").await.is_allow());
        server.command(&["HSET", KEY, "version", &before]);
        server.command(&["HDEL", KEY, &lost.to_string()]);
        assert!(change(&limiter, "30/h burst 30").await > lost);
        assert!(limiter.check("key").await.is_allow(), "it is known what was used up");
    }

    fn lives(server: &RedisServer) -> Duration {
        let Reply::Integer(ms) = server.command(&["PTTL", KEY]) else { panic!("it is a number") };
        Duration::from_millis(ms.try_into().expect("it has an end"))
    }

    /// Who comes back after a month is not locked out for a year.
    #[tokio::test]
    async fn rules_are_known_for_as_long_as_there_are_states_of_them() {
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
    async fn so_many_versions_are_known_and_states_of_older_ones_are_taken_for_used_up() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "100/h burst 100").await;
        assert!(limiter.check("known").await.is_allow() && limiter.check("older").await.is_allow());
        for number in 1..VERSIONS_MAX {
            change(&limiter, &format!("100/h burst {}", 100 + number)).await;
        }
        assert_eq!(
            limiter.inner.exact.current().expect("it is known").before.len() + 1,
            64,
            "all of them"
        );
        assert!(limiter.check("known").await.is_allow());
        change(&limiter, ONE).await;
        assert!(limiter.check("older").await.is_deny());
    }

    /// Being in flight is not having used up a rate: nothing is no state of who holds a place.
    #[tokio::test]
    async fn places_of_an_older_version_are_held_on() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "concurrency 2").await;
        let held = limiter.try_acquire("key", 2).await.expect("both are free");
        for number in 0..=VERSIONS_MAX {
            change(&limiter, &format!("concurrency {}", 2 + number % 2)).await;
        }
        change(&limiter, "concurrency 2").await;
        assert!(limiter.try_acquire("key", 1).await.is_err(), "they are held");
        assert!(held.release().await.expect("it answers"), "and can be given back");
        assert!(limiter.try_acquire("key", 2).await.is_ok());
    }

    #[tokio::test]
    async fn places_of_a_rule_that_has_none_any_more_are_nobodys() {
        let server = RedisServer::start();
        let limiter = limiter(&server, "concurrency 2").await;
        let held = limiter.try_acquire("key", 1).await.expect("it is free");
        change(&limiter, "100/s burst 100").await;
        assert!(limiter.check("key").await.is_allow());
        assert!(!held.release().await.expect("there is nothing to wait for"));
    }

    #[tokio::test]
    async fn a_rule_that_is_published_when_all_was_lost_is_another_version() {
        let server = RedisServer::start();
        let limiter = limiter(&server, ONE).await;
        let before = limiter.inner.exact.version();
        server.command(&["FLUSHALL"]);
        let after = change(&limiter, TWO).await;
        assert!(after > before, "states of the rule before are told from those of this one");
        assert_eq!(stored(&server, after), TWO);
    }
}
