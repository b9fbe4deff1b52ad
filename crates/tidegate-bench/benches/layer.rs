//! The time that a layer adds to a call of a service, for our layer and others, side by side in one run.
//!
//! There are no sockets and no runtime: a service that answers at once is called with prepared requests, and its
//! future is polled once. The layers take turns, round after round. The added time of a layer is its time less that of
//! the bare service in the same round. Both layers count by the peer's address, where axum has put it, and both
//! send the remaining quota in header fields. `cargo xtask bench --bench layer`; `docs/benchmarks.md` has the targets.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_bench::arguments::{Arguments, Syntax};
use tidegate_bench::clock::now;
use tidegate_bench::ratio::{Ratio, median};
use tidegate_tower::RateLimitLayer;
use tower::limit::RateLimit;
use tower::limit::rate::Rate;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// Number of turns of each layer.
const ROUNDS: usize = 31;
/// Calls in a turn: more than there are clients, and a multiple of a batch.
const CALLS: u32 = 1_600 * BATCH;
/// A denial of `tower_governor` takes 30 µs on a virtual machine.
const CALLS_DENIED: u32 = 160 * BATCH;
/// Requests that are prepared before a batch is timed: few enough to stay in the L1 cache.
const BATCH: u32 = 64;
/// Number of clients, in cases with many.
const CLIENTS: u32 = 10_000;
/// The maximum ratio of the time that our layer adds to the time that `tower_governor` adds.
const SHARE_MAX: f64 = 0.9;

/// How the limiter decides the requests of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Every client is always in debt and never denied, so that all layers do the same work.
    Allowed,
    /// Each client has a full bucket again at its next request. Tidegate may drop the key meanwhile; governor keeps it.
    Recovered,
    Denied,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// The burst of clients that are always in debt.
const DEBT_BURST: u32 = 100_000_000;

const KNOWN: Syntax = Syntax {
    flags: &[],
    options: &["--against", "--count"],
    words: &["allowed", "recovered", "denied", "one-client", "10k-clients", "bare", "typed"],
};

fn main() -> ExitCode {
    Arguments::run(&KNOWN, measure)
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let count = arguments.value("--count").map(str::parse).transpose();
    let count = count.map_err(|_| "--count needs a number of batches")?;
    // tower's RateLimit needs a runtime to create its timer, although it never waits for it here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    for case in CASES.iter().filter(|case| arguments.wants(&case.words())) {
        match count {
            Some(batches) => case.count(arguments, batches),
            None => case.compare(),
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Case {
    fate: Fate,
    clients: u32,
    /// Whether the service sets a content type, so that its response already has a header field.
    is_typed: bool,
}

/// A single client never has a full bucket again, and a denied request has no response of the service: such cases do
/// not exist.
const CASES: [Case; 8] = [
    Case { fate: Fate::Allowed, clients: 1, is_typed: false },
    Case { fate: Fate::Allowed, clients: CLIENTS, is_typed: false },
    Case { fate: Fate::Recovered, clients: CLIENTS, is_typed: false },
    Case { fate: Fate::Allowed, clients: 1, is_typed: true },
    Case { fate: Fate::Allowed, clients: CLIENTS, is_typed: true },
    Case { fate: Fate::Recovered, clients: CLIENTS, is_typed: true },
    Case { fate: Fate::Denied, clients: 1, is_typed: false },
    Case { fate: Fate::Denied, clients: CLIENTS, is_typed: false },
];

/// Makes this many batches of calls, and returns their time and the number of admitted calls.
type Turn = Box<dyn FnMut(u32) -> (Duration, u32)>;

struct Subject {
    name: &'static str,
    turn: Turn,
    is_limited: bool,
    is_judged: bool,
}

impl Case {
    fn words(self) -> [&'static str; 3] {
        [
            match self.fate {
                Fate::Allowed => "allowed",
                Fate::Recovered => "recovered",
                Fate::Denied => "denied",
            },
            if self.clients == 1 { "one-client" } else { "10k-clients" },
            if self.is_typed { "typed" } else { "bare" },
        ]
    }

    fn subjects(self) -> Vec<Subject> {
        let service = || service(self.is_typed);
        let subject = |name, turn| Subject { name, turn, is_limited: true, is_judged: false };
        let bare = Subject { is_limited: false, ..subject("no layer", self.calls(service())) };
        let ours = subject("tidegate", self.calls(self.ours().layer(service())));
        // axum boxes a body that is not its own.
        let boxed = self.ours().layer(service()).map_response(|response| response.map(Body::new));
        let boxed = subject("boxed by axum", self.calls(boxed));
        let governor = subject("tower_governor", self.governor());
        let mut subjects = vec![
            bare,
            Subject { is_judged: true, ..ours },
            Subject { is_judged: true, ..boxed },
            governor,
        ];
        if self.is_admitted() {
            // tower's RateLimit never denies: it is not ready, and the caller waits. It has no keys and no header fields.
            let rate = Rate::new(1_000_000_000, Duration::from_secs(1));
            subjects.push(subject("RateLimit", self.calls(RateLimit::new(service(), rate))));
        }
        subjects
    }

    fn is_admitted(self) -> bool {
        self.fate != Fate::Denied
    }

    fn ours(self) -> RateLimitLayer {
        let rule = match self.fate {
            Fate::Allowed => format!("1/s burst {DEBT_BURST}"),
            Fate::Recovered => "1000/s".to_owned(),
            Fate::Denied => "1/h".to_owned(),
        };
        RateLimitLayer::per_ip(&rule).expect("a good rule")
    }

    fn governor(self) -> Turn {
        let mut builder = GovernorConfigBuilder::default();
        match self.fate {
            Fate::Allowed => builder.per_second(1).burst_size(DEBT_BURST),
            Fate::Recovered => builder.per_millisecond(1).burst_size(1_000),
            Fate::Denied => builder.per_second(3_600).burst_size(1),
        };
        let config = builder.use_headers().finish().expect("neither is zero");
        self.calls(GovernorLayer::new(config).layer(service(self.is_typed)))
    }

    fn calls<S, R>(self, mut service: S) -> Turn
    where
        S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + 'static,
    {
        let mut requests = Vec::with_capacity(BATCH as usize);
        let mut clients = (0..self.clients).cycle();
        Box::new(move |batches| {
            let (mut taken, mut admitted) = (Duration::ZERO, 0);
            for _ in 0..batches {
                requests.extend(clients.by_ref().take(BATCH as usize).map(request));
                let start = now();
                admitted += serve(&mut service, &mut requests);
                taken += start.elapsed();
            }
            (taken, admitted)
        })
    }

    fn compare(self) {
        let calls = if self.is_admitted() { CALLS } else { CALLS_DENIED };
        let mut subjects = self.subjects();
        let mut rounds = vec![Vec::with_capacity(ROUNDS); subjects.len()];
        // The first round warms up, and uses up the burst in cases of denials.
        for round in 0..=ROUNDS {
            for (subject, times) in subjects.iter_mut().zip(&mut rounds) {
                let (taken, admitted) = (subject.turn)(calls / BATCH);
                if round > 0 {
                    let passes = self.is_admitted() || !subject.is_limited;
                    let expected = if passes { calls } else { 0 };
                    assert_eq!(admitted, expected, "{} took another path", subject.name);
                    times.push(taken.as_secs_f64() * 1e9 / f64::from(calls));
                }
            }
        }
        self.print(&subjects, &rounds);
    }

    fn print(self, subjects: &[Subject], rounds: &[Vec<f64>]) {
        println!("\n{}, {ROUNDS} rounds", self.words().join(", "));
        println!("{:<16} {:>8} {:>8}   of what tower_governor adds", "", "ns/call", "added");
        let of = |name| {
            let place = subjects.iter().position(|subject| subject.name == name);
            &rounds[place.expect("it takes part")]
        };
        let bare = of("no layer");
        let added = |times: &[f64]| -> Vec<f64> {
            times.iter().zip(bare).map(|(with, without)| with - without).collect()
        };
        let governor = added(of("tower_governor"));
        for (subject, times) in subjects.iter().zip(rounds) {
            let added = added(times);
            let ratio = Ratio::of(&added, &governor);
            let verdict = if subject.is_judged { ratio.verdict(SHARE_MAX) } else { String::new() };
            let (name, all, added) = (subject.name, median(times), median(&added));
            println!("{name:<16} {all:>8.1} {added:>8.1}   {ratio:<20} {verdict}");
        }
    }

    /// Makes the calls and nothing else, for callgrind to count.
    fn count(self, arguments: &Arguments, batches: u32) {
        for mut subject in self.subjects() {
            if arguments.wants_peer(subject.name) {
                // The first call of each client costs more. Making it here, its cost does not depend on `batches`.
                (subject.turn)(self.clients.div_ceil(BATCH));
                (subject.turn)(batches);
            }
        }
    }
}

/// A service that answers at once with an empty body, with or without a content type.
fn service(
    is_typed: bool,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + 'static {
    service_fn(move |_: Request<Body>| {
        let mut response = Response::new(Body::empty());
        if is_typed {
            response.headers_mut().insert(CONTENT_TYPE, TEXT);
        }
        ready(Ok(response))
    })
}

fn request(client: u32) -> Request<Body> {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + client);
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 50_000))));
    request
}

/// Calls the service with each request, and returns the number of admitted ones. Callgrind counts inside this function,
/// selected by its name.
#[inline(never)]
fn serve<S, R>(service: &mut S, requests: &mut Vec<Request<Body>>) -> u32
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut admitted = 0;
    for request in requests.drain(..) {
        assert!(service.poll_ready(&mut context).is_ready(), "it never has to wait");
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
            panic!("it answers at once");
        };
        admitted += u32::from(black_box(&response).status() == StatusCode::OK);
    }
    admitted
}
