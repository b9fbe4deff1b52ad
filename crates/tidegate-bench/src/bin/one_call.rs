//! Makes n calls through a layer and nothing else, for `cargo xtask instructions` to count.
//!
//! It is a separate program because linking the layer changes how the compiler inlines the functions of a lone decision.

use http::{Request, Response, StatusCode};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use tidegate::Limiter;
use tidegate_bench::counted::{self, Case, Counter, Decide, prepared};
use tidegate_tower::{Key, Limit, Peer, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const CASES: &[Case] = &[
    // The cost of the request and the response alone, which the other cases include.
    Case { name: "layer-none", is_allowed: true, prepare: || called(Answers) },
    Case { name: "layer-allowed", is_allowed: true, prepare: || per_ip("1/s burst 1000000") },
    // One was admitted while the case was prepared.
    Case { name: "layer-denied", is_allowed: false, prepare: || per_ip("1/h") },
    // The same, over a limiter that is shared with other code: addresses become text keys.
    Case { name: "layer-over-allowed", is_allowed: true, prepare: || over("1/s burst 1000000") },
    Case { name: "layer-over-denied", is_allowed: false, prepare: || over("1/h") },
];

fn main() -> ExitCode {
    counted::main(CASES)
}

/// A call through a layer that limits by address and sets all header fields.
fn per_ip(text: &str) -> Decide {
    called(RateLimitLayer::per_ip(text).expect("a good rule").layer(Answers))
}

fn over(text: &str) -> Decide {
    let limit = Limit::over("ip", Limiter::with_clock(text.parse().expect("a good rule"), Counter))
        .key(Key::ip());
    called(RateLimitLayer::new(limit).expect("a good limit").layer(Answers))
}

fn called<S, R>(service: S) -> Decide
where
    S: Service<Request<()>, Response = Response<R>, Error = Infallible> + 'static,
{
    let service = RefCell::new(service);
    prepared(move || {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer(IpAddr::from([10, 0, 0, 1])));
        let answer =
            pin!(service.borrow_mut().call(request)).poll(&mut Context::from_waker(Waker::noop()));
        matches!(answer, Poll::Ready(Ok(response)) if response.status() == StatusCode::OK)
    })
}

/// A service that answers at once with an empty body.
#[derive(Clone)]
struct Answers;

impl Service<Request<()>> for Answers {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_decided_as_declared() {
        counted::assert_all(CASES, 1_000);
    }
}
