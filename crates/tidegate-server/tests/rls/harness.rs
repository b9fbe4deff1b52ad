//! A server with a manual clock, and requests to it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::snapshot::Snapshot;
use tidegate::{ManualClock, Timestamp};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, DescriptorConfig, LimitConfig};
use tidegate_server::matching::{DescriptorPart, Pattern};
use tidegate_server::protocol::grpc::proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tidegate_server::protocol::grpc::{RateLimits, Request};
use tidegate_server::server::Server;
use tonic::Status;

/// The domain of all requests and limits.
pub(crate) const DOMAIN: &str = "tests";

pub(crate) struct Harness {
    pub(crate) server: Arc<Server>,
    pub(crate) limits: RateLimits,
    pub(crate) clock: ManualClock,
}

impl Harness {
    /// Returns a server two seconds into a minute, the time in the reference server's tests.
    pub(crate) fn new(limits: Vec<LimitConfig>) -> Self {
        Self::with(Config { limits, ..Config::default() })
    }

    pub(crate) fn with(config: Config) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(2_222_000_000));
        let server_clock = ServerClock::Manual(clock.clone());
        let server = Server::new(config, None, server_clock, Snapshot::default());
        Self { limits: RateLimits::new(Arc::clone(&server)), server, clock }
    }

    pub(crate) fn try_ask(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let bytes = prost::Message::encode_to_vec(request);
        let read = Request::read(&bytes).unwrap();
        now(self.limits.answer(&read)).expect("the store in memory answers immediately")
    }

    pub(crate) fn ask(&self, request: &RateLimitRequest) -> RateLimitResponse {
        self.try_ask(request).unwrap()
    }
}

/// Returns the result of a future if it is ready at its first poll.
pub(crate) fn now<A>(answer: impl Future<Output = A>) -> Option<A> {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Returns a limit on descriptors such as `path=/login, user`; a key without a value matches any value.
pub(crate) fn limit(name: &str, rule: &str, entries: &str) -> LimitConfig {
    let part = |text: &str| match text.split_once('=') {
        Some((key, value)) => {
            DescriptorPart { key: key.to_owned(), value: Some(Pattern(value.to_owned())) }
        }
        None => DescriptorPart { key: text.to_owned(), value: None },
    };
    let descriptor = DescriptorConfig {
        domain: DOMAIN.to_owned(),
        entries: entries.split(", ").map(part).collect(),
        replaces: Vec::new(),
    };
    let limit = LimitConfig::new(name, rule.parse().unwrap());
    LimitConfig { descriptor: Some(descriptor), ..limit }
}

/// Returns a descriptor such as `path=/login, user=1`.
pub(crate) fn descriptor(entries: &str) -> RateLimitDescriptor {
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = entries.split(", ").map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

pub(crate) fn request(descriptors: impl Into<Vec<RateLimitDescriptor>>) -> RateLimitRequest {
    let descriptors = descriptors.into();
    RateLimitRequest { domain: DOMAIN.to_owned(), descriptors, hits_addend: 0 }
}

/// Returns a request with one descriptor.
pub(crate) fn about(entries: &str) -> RateLimitRequest {
    request([descriptor(entries)])
}

/// Returns the code and the remaining count of each status.
pub(crate) fn seen(response: &RateLimitResponse) -> Vec<(Code, u32)> {
    let seen = |status: &DescriptorStatus| (status.code(), status.limit_remaining);
    response.statuses.iter().map(seen).collect()
}

/// Returns the value of a response header for the client.
pub(crate) fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let headers = &response.response_headers_to_add;
    headers.iter().find(|header| header.key == name).map(|header| header.value.as_str())
}
