//! Fuzz target: any bytes as a rate limit request.
//!
//! Seeds    `fuzz/seeds/rls` has a request of each kind: plain, nested, with costs, with a negative cost, with its own limit,
//!          and with bytes that are not UTF-8.

use super::at_once;
use prost::Message;
use std::sync::LazyLock;
use tidegate::snapshot::Snapshot;
use tidegate::{ManualClock, Timestamp};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, DescriptorConfig, LimitConfig, Mode};
use tidegate_server::matching::{DescriptorPart, Pattern};
use tidegate_server::protocol::grpc::proto::{Code, RateLimitRequest, RateLimitResponse};
use tidegate_server::protocol::grpc::{BadRequest, RateLimits, Request};
use tidegate_server::server::Server;

static LIMITS: LazyLock<RateLimits> = LazyLock::new(|| {
    let clock = ManualClock::at(Timestamp::from_micros(2_222_000_000));
    let mut shy = limit("shy", "2/min sliding", &[("a", None), ("b", None)]);
    shy.mode = Mode::Shadow;
    let limits = vec![
        limit("any", "5/min fixed", &[("a", None)]),
        limit("some", "100/s burst 5", &[("a", Some("x*"))]),
        limit("one", "1/h sliding-log", &[("a", Some("v"))]),
        shy,
    ];
    let config = Config { limits, ..Config::default() };
    let clock = ServerClock::Manual(clock);
    RateLimits::new(Server::new(config, None, clock, Snapshot::default()))
});

fn limit(name: &str, rule: &str, entries: &[(&str, Option<&str>)]) -> LimitConfig {
    let part = |(key, value): &(&str, Option<&str>)| DescriptorPart {
        key: (*key).to_owned(),
        value: value.map(|value| Pattern(value.to_owned())),
    };
    let mut limit = LimitConfig::new(name, rule.parse().expect("a good rule"));
    limit.descriptor = Some(DescriptorConfig {
        domain: "d".to_owned(),
        entries: entries.iter().map(part).collect(),
        replaces: Vec::new(),
    });
    limit
}

/// Checks that the request is decoded as prost decodes it, within the caps, and answered without a panic.
///
/// # Panics
///
/// If a check fails.
pub fn rls(bytes: &[u8]) {
    let (read, decoded) = (Request::read(bytes), RateLimitRequest::decode(bytes));
    if let Ok(decoded) = &decoded {
        assert!(!matches!(read, Err(BadRequest::Malformed(_))), "prost reads {decoded:?}");
    }
    let Ok(read) = read else { return };
    if let Ok(decoded) = &decoded {
        compare(&read, decoded);
    }
    answer(&read);
}

fn compare(read: &Request<'_>, decoded: &RateLimitRequest) {
    assert_eq!((read.domain.as_ref(), read.hits_addend), (&*decoded.domain, decoded.hits_addend));
    assert_eq!(read.descriptors.len(), decoded.descriptors.len());
    for (read, decoded) in read.descriptors.iter().zip(&decoded.descriptors) {
        let read_entries: Vec<(&str, &str)> =
            read.entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let entries: Vec<(&str, &str)> =
            decoded.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        assert_eq!(read_entries, entries);
        assert_eq!(read.limit, decoded.limit);
        assert_eq!(read.hits_addend, decoded.hits_addend);
        assert_eq!(read.is_negative_hits, decoded.is_negative_hits);
    }
}

fn answer(request: &Request<'_>) {
    let Ok(answer) = at_once(LIMITS.answer(request)) else { return };
    assert_eq!(answer.statuses.len(), request.descriptors.len());
    let is_denied = answer.statuses.iter().any(|status| status.code() == Code::OverLimit);
    assert_eq!(is_denied, answer.overall_code() == Code::OverLimit);
    assert_eq!(RateLimitResponse::decode(&*answer.encode_to_vec()).as_ref(), Ok(&answer));
}
