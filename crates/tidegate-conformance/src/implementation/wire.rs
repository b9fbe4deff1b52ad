//! The server, asked over a wire: what differs between wires is how a question is said.

use super::{Answer, Ask, Implementation, Patience, Refusal, Target};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{ManualClock, Snapshot, Span, Timestamp, Window};
use tidegate_redis::{RedisStore, Settings};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, DescriptorConfig, LimitConfig};
use tidegate_server::matching::{DescriptorPart, KeyPart, Pattern};
use tidegate_server::server::Server;
use tidegate_testbed::RedisServer;
use tokio::runtime::Runtime;

/// What Envoy would say: the domain, and the entries of a descriptor.
pub(super) const DOMAIN: &str = "spec";
pub(super) const LIMIT_ENTRY: &str = "limit";
pub(super) const KEY_ENTRY: &str = "key";

/// How a wire says it. Limits are named `limit0`, `limit1` and so on.
pub trait Speaker {
    /// Somebody new who talks to this server, and waits for its answers so. The server goes by the clock.
    fn new(server: Arc<Server>, patience: Patience, clock: ManualClock) -> Self;

    /// The shortest time that can be said.
    fn precision() -> Span;

    /// Decides.
    fn check(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal>;

    /// Decides under several limits at once.
    fn check_all(&mut self, limits: &[String], key: &str, cost: u64) -> Result<Answer, Refusal>;

    /// Looks.
    fn peek(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal>;

    /// Gives back.
    fn refund(&mut self, limit: &str, key: &str, cost: u64) -> Result<(), Refusal>;

    /// Forgets.
    fn reset(&mut self, limit: &str, key: &str) -> Result<(), Refusal>;

    /// Takes a place; the lease if there was one.
    fn acquire(
        &mut self,
        limit: &str,
        key: &str,
        cost: u64,
    ) -> Result<(Answer, Option<String>), Refusal>;

    /// Gives a place back.
    fn release(&mut self, lease: &str) -> Result<(), Refusal>;
}

/// The server, and somebody who talks to it.
pub struct Wire<S> {
    /// Where its limits are, if not in memory.
    redis: Option<(RedisServer, Rc<Runtime>)>,
    clock: ManualClock,
    limits: Vec<LimitConfig>,
    talk: Option<(Arc<Server>, S)>,
    /// Places that are held: of which limit, by whom, of what cost, and the lease.
    held: VecDeque<(usize, String, u64, String)>,
}

impl<S> Default for Wire<S> {
    fn default() -> Self {
        let clock = ManualClock::new();
        Self { redis: None, clock, limits: Vec::new(), talk: None, held: VecDeque::new() }
    }
}

impl<S: Speaker> Wire<S> {
    /// The same with limits in Redis.
    ///
    /// # Panics
    ///
    /// If there is no Redis to start.
    pub fn on_redis() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Rc::new(runtime.expect("there is a runtime"));
        Self { redis: Some((RedisServer::start(), runtime)), ..Self::default() }
    }

    fn at(&mut self, now: Timestamp, limit: usize) -> Result<(&mut S, String, bool), Refusal> {
        if self.redis.is_some() && now.as_micros() >= 1 << 53 {
            return Err(Refusal::CannotSay("times that doubles cannot count"));
        }
        self.clock.set(now);
        let failed = || Refusal::Failed(format!("there is no limit number {limit}"));
        let config = self.limits.get(limit).ok_or_else(failed)?;
        let (_, speaker) = self.talk.as_mut().ok_or_else(failed)?;
        Ok((speaker, config.name.clone(), config.rule.is_concurrency()))
    }
}

/// A server whose limits are in Redis, which has forgotten everything.
fn shared(
    (redis, runtime): (&RedisServer, &Runtime),
    config: Config,
    clock: &ManualClock,
) -> Result<Arc<Server>, Refusal> {
    redis.command(&["FLUSHALL"]);
    let address = redis.url().parse().expect("a server has an address");
    // The machine may be busy, and a test is not to be decided without Redis.
    let settings = Settings::default().deadline(Duration::from_secs(10));
    runtime.block_on(async {
        let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
        for limit in &config.limits {
            let kept = store.limiter(&limit.name, limit.rule.clone());
            kept.map_err(|_| Refusal::CannotSay("more than doubles can count"))?;
        }
        let server = Server::shared(config, None, ServerClock::Manual(clock.clone()), store);
        publish(&server).await?;
        Ok(server)
    })
}

/// Others who share the limits have heard of their rules.
async fn publish(server: &Server) -> Result<(), Refusal> {
    let published = server.engine.publish().await;
    published.map_err(|error| Refusal::Failed(error.to_string()))
}

fn config(number: usize, rule: &str) -> Result<LimitConfig, Refusal> {
    let rule =
        rule.parse().map_err(|error: tidegate::RuleError| Refusal::Failed(error.to_string()))?;
    let name = format!("limit{number}");
    let part = |key: &str, value: Option<&str>| DescriptorPart {
        key: key.to_owned(),
        value: value.map(|value| Pattern(value.to_owned())),
    };
    let descriptor = DescriptorConfig {
        domain: DOMAIN.to_owned(),
        entries: vec![part(LIMIT_ENTRY, Some(&name)), part(KEY_ENTRY, None)],
        replaces: Vec::new(),
    };
    // The same key as over the other wires.
    let key = vec![KeyPart::Descriptor(KEY_ENTRY.to_owned())];
    Ok(LimitConfig { descriptor: Some(descriptor), key, ..LimitConfig::new(name, rule) })
}

impl<S: Speaker> Implementation for Wire<S> {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.clock = ManualClock::at(birth);
        let limits = rules.iter().enumerate().map(|(number, rule)| config(number, rule));
        self.limits = limits.collect::<Result<_, _>>()?;
        self.held.clear();
        let config = Config { limits: self.limits.clone(), ..Config::default() };
        let clock = ServerClock::Manual(self.clock.clone());
        self.talk = None;
        let (server, patience) = match &self.redis {
            None => (Server::new(config, None, clock, Snapshot::default()), Patience::None),
            Some((redis, runtime)) => {
                let server = shared((redis, runtime), config, &self.clock)?;
                (server, Patience::Until(Rc::clone(runtime), self.clock.clone()))
            }
        };
        self.talk = Some((Arc::clone(&server), S::new(server, patience, self.clock.clone())));
        Ok(())
    }

    fn precision(&self) -> Span {
        S::precision()
    }

    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: Ask) -> Result<Answer, Refusal> {
        if ask.patience.is_some() {
            return Err(Refusal::CannotSay("how long one would wait"));
        }
        if self.redis.is_some() && ask.cost >= 1 << 53 {
            return Err(Refusal::CannotSay("costs that doubles cannot count"));
        }
        let (speaker, limit, is_concurrency) = self.at(now, on.limit)?;
        if !is_concurrency {
            return speaker.check(&limit, on.key, ask.cost);
        }
        let (answer, lease) = speaker.acquire(&limit, on.key, ask.cost)?;
        if let Some(lease) = lease.filter(|_| ask.cost > 0) {
            self.held.push_back((on.limit, on.key.to_owned(), ask.cost, lease));
        }
        Ok(answer)
    }

    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> Result<Answer, Refusal> {
        if self.limits.iter().any(|limit| limit.rule.is_concurrency()) {
            return Err(Refusal::CannotSay("holding a permit together with a rate"));
        }
        let names: Vec<String> = self.limits.iter().map(|limit| limit.name.clone()).collect();
        self.at(now, 0)?.0.check_all(&names, key, cost)
    }

    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<Answer, Refusal> {
        let (speaker, limit, _) = self.at(now, on.limit)?;
        speaker.peek(&limit, on.key, cost)
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let (speaker, limit, _) = self.at(now, on.limit)?;
        speaker.refund(&limit, on.key, cost)
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let is_it = |(limit, key, held, _): &(usize, String, u64, String)| {
            *limit == on.limit && key == on.key && *held == cost
        };
        let held = self.held.iter().position(is_it).and_then(|place| self.held.remove(place));
        let (.., lease) =
            held.ok_or_else(|| Refusal::Failed(format!("nothing of cost {cost} is in flight")))?;
        self.at(now, on.limit)?.0.release(&lease)
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let (speaker, limit, is_concurrency) = self.at(now, on.limit)?;
        if is_concurrency {
            return Err(Refusal::CannotSay("forgetting who is in flight"));
        }
        speaker.reset(&limit, on.key)
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        self.at(now, limit)?;
        self.limits[limit] = config(limit, rule)?;
        if let Some((server, _)) = &self.talk {
            server.engine.reload(&self.limits);
            if let Some((_, runtime)) = &self.redis {
                runtime.block_on(publish(server))?;
            }
        }
        Ok(())
    }

    fn window(&mut self, _: Timestamp, _: Target<'_>) -> Result<Option<Window>, Refusal> {
        Err(Refusal::CannotSay("windows"))
    }
}
