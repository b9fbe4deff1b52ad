//! The keys of requests, also of clients that forge their address (T55).

use crate::fixture::{Inner, ask, call, from, get, limit};
use axum::Router;
use axum::extract::ConnectInfo;
use http::HeaderName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate::{Clock, Limiter, ManualClock};
use tidegate_tower::{
    AddressBits, Head, Key, Limit, OnMissing, ProxyHeader, RateLimitLayer, service::RateLimit,
};
use tower_layer::Layer;

/// A limit with its own limiter, and one over an existing limiter.
const BY_ADDRESS: [fn() -> RateLimitLayer; 2] = [
    || RateLimitLayer::per_ip("1/h").unwrap(),
    || {
        let limiter = Limiter::new("1/h".parse().unwrap());
        RateLimitLayer::new(Limit::over("ip", limiter).key(Key::ip())).unwrap()
    },
];

fn behind_proxies(by_address: fn() -> RateLimitLayer) -> RateLimitLayer {
    by_address().trusted_proxies(["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()))
}

/// The statuses of these requests, one after the other.
async fn statuses<C: Clock, const N: usize>(
    service: &RateLimit<Inner, C>,
    requests: [http::request::Builder; N],
) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, request) in statuses.iter_mut().zip(requests) {
        *status = ask(service, request).await.status;
    }
    statuses
}

#[tokio::test]
async fn the_headers_of_an_untrusted_peer_are_ignored() {
    for by_address in BY_ADDRESS {
        let service = behind_proxies(by_address).layer(Inner);
        for (index, (name, value)) in [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("forwarded", "for=3.3.3.3"),
            ("x-real-ip", "4.4.4.4"),
            ("cf-connecting-ip", "5.5.5.5"),
            ("true-client-ip", "6.6.6.6"),
            ("x-client-ip", "7.7.7.7"),
        ]
        .into_iter()
        .enumerate()
        {
            let reply = ask(&service, from("198.51.100.9").header(name, value)).await;
            assert_eq!(reply.status, if index == 0 { 200 } else { 429 }, "{name}: {value}");
        }
    }
}

/// The proxy always reports the same client. The client writes another address into the other header each time.
#[tokio::test]
async fn a_client_gains_nothing_by_forging_the_header_that_its_proxy_does_not_write() {
    for by_address in BY_ADDRESS {
        let forged = |turn: usize| format!("198.51.100.{turn}");
        let forwarded = |ip: &str| ("forwarded", format!("for={ip}"));
        let x_forwarded_for = |ip: &str| ("x-forwarded-for", ip.to_owned());
        let (honest, mut believed) = ("192.0.2.7", Vec::new());
        for header in [ProxyHeader::Forwarded, ProxyHeader::XForwardedFor, ProxyHeader::Either] {
            let layer = || behind_proxies(by_address);
            let writes_forwarded = layer().proxy_header(header).layer(Inner);
            let writes_the_other = layer().proxy_header(header).layer(Inner);
            let mut passed = [0, 0];
            for turn in 1..=5 {
                let pairs = [
                    (&writes_forwarded, forwarded(honest), x_forwarded_for(&forged(turn))),
                    (&writes_the_other, x_forwarded_for(honest), forwarded(&forged(turn))),
                ];
                for (passed, (service, written, forged)) in passed.iter_mut().zip(pairs) {
                    let request =
                        from("10.0.0.1").header(written.0, written.1).header(forged.0, forged.1);
                    *passed += usize::from(ask(service, request).await.status == 200);
                }
            }
            believed.push((header, passed));
        }
        let all = [
            (ProxyHeader::Forwarded, [1, 5]),
            (ProxyHeader::XForwardedFor, [5, 1]),
            // By default a proxy that writes only `Forwarded` must remove the other header.
            (ProxyHeader::Either, [5, 1]),
        ];
        assert_eq!(believed, all);
    }
}

/// Without the header that the proxies write, the address of the proxy is counted.
#[tokio::test]
async fn a_header_that_is_not_trusted_is_ignored_and_an_untrusted_peer_has_no_trusted_header() {
    for by_address in BY_ADDRESS {
        for (header, other, value) in [
            (ProxyHeader::Forwarded, "x-forwarded-for", ["1.1.1.1", "2.2.2.2"]),
            (ProxyHeader::XForwardedFor, "forwarded", ["for=1.1.1.1", "for=2.2.2.2"]),
        ] {
            let layer = behind_proxies(by_address);
            let service = layer.proxy_header(header).layer(Inner);
            let from_proxy = value.map(|value| from("10.0.0.1").header(other, value));
            assert_eq!(statuses(&service, from_proxy).await, [200, 429], "{header:?}");
            let untrusted = |name, value| from("192.0.2.9").header(name, value);
            let forged =
                [untrusted("forwarded", "for=3.3.3.3"), untrusted("x-forwarded-for", "4.4.4.4")];
            assert_eq!(statuses(&service, forged).await, [200, 429], "{header:?}");
        }
    }
}

/// Like `X-Forwarded-For`: from the right to the first address that is not a trusted proxy.
#[tokio::test]
async fn forwarded_is_walked_from_the_right_and_every_spelling_is_one_key() {
    for by_address in BY_ADDRESS {
        let service = behind_proxies(by_address).proxy_header(ProxyHeader::Forwarded).layer(Inner);
        let through = |chain: &str| from("10.0.0.1").header("forwarded", chain);
        let requests = [
            through("for=198.51.100.1"),
            through("for=1.1.1.1, for=198.51.100.1;proto=https"),
            through("for=2.2.2.2, For=\"198.51.100.1:4711\", for=10.9.9.9"),
            through("for=\"[::ffff:198.51.100.1]\""),
            through("for=\"[::ffff:c633:6401]:80\""),
            through("for=198.51.100.2"),
        ];
        assert_eq!(statuses(&service, requests).await, [200, 429, 429, 429, 429, 200]);
        let unnamed = ["for=unknown", "for=_hidden", "by=1.1.1.1", "for=\"1.1.1.1"].map(through);
        assert_eq!(statuses(&service, unnamed).await, [200, 429, 429, 429], "all are the proxy");
        let chain = "for=7.7.7.7, ".repeat(1_000) + "for=198.51.100.2";
        assert_eq!(ask(&service, through(&chain)).await.status, 429, "a thousand hops");
        let twice = from("10.0.0.1").header("forwarded", "for=8.8.8.8");
        let twice = twice.header("forwarded", "for=198.51.100.2");
        assert_eq!(ask(&service, twice).await.status, 429, "the last line is the nearest proxy's");
    }
}

#[tokio::test]
async fn no_proxy_is_trusted_by_default() {
    for by_address in BY_ADDRESS {
        let service = by_address().layer(Inner);
        let forged = |ip: &str| from("10.0.0.1").header("x-forwarded-for", ip);
        assert_eq!(statuses(&service, [forged("1.1.1.1"), forged("2.2.2.2")]).await, [200, 429]);
    }
}

#[tokio::test]
async fn behind_trusted_proxies_the_first_untrusted_address_from_the_right_is_counted() {
    for by_address in BY_ADDRESS {
        let service = behind_proxies(by_address).layer(Inner);
        let through = |chain: &str| from("10.0.0.1").header("x-forwarded-for", chain);
        let requests = [
            through("198.51.100.1"),
            through("1.1.1.1, 198.51.100.1"),
            through("2.2.2.2, 198.51.100.1, 10.9.9.9"),
            through("198.51.100.2"),
        ];
        assert_eq!(statuses(&service, requests).await, [200, 429, 429, 200]);
        let chain = "7.7.7.7, ".repeat(1_000) + "198.51.100.2";
        assert_eq!(ask(&service, through(&chain)).await.status, 429, "a thousand hops");
    }
}

#[tokio::test]
async fn every_form_of_an_ipv4_address_is_one_key() {
    for by_address in BY_ADDRESS {
        let service = by_address().layer(Inner);
        let forms = [from("1.2.3.4"), from("::ffff:1.2.3.4"), from("::ffff:102:304")];
        assert_eq!(statuses(&service, forms).await, [200, 429, 429]);
        let others = [from("1.2.3.5"), from("::ffff:1.2.3.6"), from("::1.2.3.4")];
        assert_eq!(
            statuses(&service, others).await,
            [200, 200, 200],
            "CVE-2026-30827: not one key for all"
        );
    }
}

#[tokio::test]
async fn all_addresses_of_an_ipv6_network_are_one_key() {
    for by_address in BY_ADDRESS {
        let service = by_address().layer(Inner);
        for turn in 0..1_000_u32 {
            let (high, low) = (turn >> 8, turn.wrapping_mul(40_503) & 0xffff);
            let reply =
                ask(&service, from(&format!("2001:db8:0:7:{high:x}:{low:x}::{turn:x}"))).await;
            assert_eq!(reply.status, if turn == 0 { 200 } else { 429 });
        }
        let others = [from("2001:db8:0:8::1"), from("2001:db8::1.2.3.4"), from("2001:db8::2")];
        assert_eq!(statuses(&service, others).await, [200, 200, 429]);
    }
}

#[tokio::test]
async fn with_fewer_bits_all_addresses_of_a_network_are_one_key() {
    let by_network = Key::ip_by(AddressBits::new(24, 48));
    let over = limit("ip", "1/h", &ManualClock::new()).key(by_network.clone());
    let own = Limit::new("ip", "1/h").unwrap().key(by_network);
    let requests = || {
        let [one, other] = ["2001:db8:7:1::1", "2001:db8:7:2::1"];
        [from(one), from(other), from("192.0.2.1"), from("192.0.2.200")]
    };
    let service = RateLimitLayer::new(over).unwrap().layer(Inner);
    assert_eq!(statuses(&service, requests()).await, [200, 429, 200, 429]);
    let service = RateLimitLayer::new(own).unwrap().layer(Inner);
    assert_eq!(statuses(&service, requests()).await, [200, 429, 200, 429]);
}

/// The layers find the client's address in different ways and have different further limits.
#[tokio::test]
async fn a_limit_that_several_layers_share_counts_each_request_once() {
    let limit = Limit::new("ip", "30/h").unwrap().key(Key::ip());
    let of = |limit: Limit| RateLimitLayer::new(limit).unwrap();
    let named = HeaderName::from_static("x-client");
    let reported = |head: &Head<'_>| std::future::ready(head.header("x-client").map(str::to_owned));
    let all = || Limit::new("all", "99/h").unwrap();
    let services = [
        of(limit.clone()),
        of(limit.clone()).and(all()).unwrap(),
        of(limit.clone()).wait(Duration::from_millis(1)),
        of(limit.clone()).trusted_proxies(["10.0.0.0/8".parse().unwrap()]),
        of(limit.clone()).peer(|_| Some("::ffff:192.0.2.7".parse().unwrap())),
        of(limit.clone().key(Key::header(named))),
        of(limit.clone().key(Key::by(|_| Some("192.0.2.7")))),
        of(limit.clone().key(Key::by_async(reported))),
        of(limit.clone().key(Key::by_async(reported))).and(all()).unwrap(),
        // The charge is refunded, and 3 are charged when the response is known.
        of(limit.clone().refund_if(|_, _| true).charge_by(|_, _| 3)),
        // The ten bytes of the body, and 1 for the request.
        of(limit.clone().charge_bytes()),
    ];
    let address = SocketAddr::from(([192, 0, 2, 7], 4711));
    let request = |is_axum: bool| {
        let request = from("192.0.2.7").header("x-client", "192.0.2.7");
        if is_axum { request.extension(ConnectInfo(address)) } else { request }
    };
    let mut charged = Vec::new();
    for (index, layer) in services.into_iter().enumerate() {
        let service = layer.layer(Inner);
        // The address is found in axum's extension for every second layer.
        let reply = ask(&service, request(index % 2 == 0)).await;
        assert_eq!(reply.status, 200, "{index}");
        let through = from("10.0.0.1").header("x-forwarded-for", "::ffff:192.0.2.7");
        let proxied = of(limit.clone().cost(0)).trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
        let reply = ask(&proxied.layer(Inner), through).await;
        let left = reply.header("ratelimit").unwrap().strip_prefix(r#""ip";r="#).unwrap();
        charged.push(30 - left.split(';').next().unwrap().parse::<u32>().unwrap());
    }
    assert_eq!(charged, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 23], "after each of them");
}

/// The function may have side effects.
#[tokio::test]
async fn the_peer_is_looked_up_once() {
    for (index, by_address) in BY_ADDRESS.into_iter().enumerate() {
        for address in ["192.0.2.7", "2001:db8::1"] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let layer = by_address().peer(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                address.parse().ok()
            });
            assert_eq!(ask(&layer.layer(Inner), get("/")).await.status, 200);
            assert_eq!(calls.load(Ordering::Relaxed), 1, "{address}, {index}");
        }
    }
}

#[tokio::test]
async fn in_an_existing_limiter_the_key_of_an_address_is_its_text() {
    let limiter = Limiter::new("1/h".parse().unwrap());
    let limit = Limit::over("ip", limiter.clone()).key(Key::ip());
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    assert_eq!(ask(&service, from("192.0.2.7")).await.status, 200);
    assert!(limiter.check(&b"192.0.2.7"[..]).is_deny());
    limiter.reset(&b"192.0.2.7"[..]);
    assert_eq!(ask(&service, from("192.0.2.7")).await.status, 200);
}

#[tokio::test]
async fn a_missing_peer_is_reported_and_makes_no_shared_key() {
    for by_address in BY_ADDRESS {
        let service = by_address().layer(Inner);
        for _ in 0..3 {
            let reply = ask(&service, get("/")).await;
            assert_eq!(reply.status, 500);
            let detail = &reply.body;
            assert!(
                detail.contains("into_make_service_with_connect_info::<SocketAddr>()"),
                "{detail}"
            );
            assert!(detail.contains("tidegate_tower::Peer"), "{detail}");
        }
        assert_eq!(ask(&service, call()).await.header("grpc-status"), Some("13"));
    }
}

#[tokio::test]
async fn a_missing_header_beside_an_address_is_no_error_of_the_server() {
    let pair = Key::ip().and(Key::header(HeaderName::from_static("x-user")));
    let layer = RateLimitLayer::new(limit("pair", "1/h", &ManualClock::new()).key(pair)).unwrap();
    let service = layer.layer(Inner);
    assert_eq!(statuses(&service, [from("192.0.2.1"), from("192.0.2.2")]).await, [200, 429]);
}

/// The service behind the layer uses one of the two values. With a random second value, a client would get a new key each time.
#[tokio::test]
async fn a_header_that_is_sent_twice_makes_no_new_key() {
    let by_header = Key::header(HeaderName::from_static("x-api-key"));
    let limit = limit("key", "1/h", &ManualClock::new()).key(by_header);
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    let twice = |other: &str| get("/").header("x-api-key", "good").header("x-api-key", other);
    assert_eq!(statuses(&service, [twice("1"), twice("2"), twice("3")]).await, [200, 429, 429]);
}

#[tokio::test]
async fn on_missing_decides_about_requests_without_a_key() {
    let of = |on_missing: Option<OnMissing>| {
        let limit = limit("user", "1/h", &ManualClock::new())
            .key(Key::header(HeaderName::from_static("x-user")));
        let limit = match on_missing {
            Some(on_missing) => limit.on_missing(on_missing),
            None => limit,
        };
        RateLimitLayer::new(limit).unwrap().layer(Inner)
    };
    let twice = || [get("/"), get("/").header("x-user", "")];
    assert_eq!(statuses(&of(None), twice()).await, [200, 429], "they share one key");
    assert_eq!(statuses(&of(Some(OnMissing::Shared)), twice()).await, [200, 429]);
    assert_eq!(statuses(&of(Some(OnMissing::Allow)), twice()).await, [200, 200]);
    assert_eq!(statuses(&of(Some(OnMissing::Deny)), twice()).await, [429, 429]);
    let reply = ask(&of(Some(OnMissing::Deny)), get("/")).await;
    assert!(reply.body.contains("counts by `header:x-user`, which the request does not have"));
    assert_eq!(reply.header("retry-after"), None, "waiting does not help");
    let named = |name: &str| get("/").header("x-user", name);
    let deny = of(Some(OnMissing::Deny));
    assert_eq!(statuses(&deny, [named("a"), named("a"), named("b")]).await, [200, 429, 200]);
}

#[tokio::test]
async fn keys_come_from_every_part_of_a_request() {
    #[derive(Clone)]
    struct User {
        id: u64,
    }
    let user = |id| get("/").extension(User { id });
    let (a, b) = (|| get("/a"), || get("/b"));
    let host = |host: &str| get("/").header("host", host);
    let keys = [
        (Key::path(), [a(), a(), b()]),
        (Key::method(), [a(), b(), get("/").method("POST")]),
        (Key::host(), [host("x.example"), host("X.example:80"), host("y.example")]),
        (Key::extension(|user: &User| user.id), [user(1), user(1), user(2)]),
        (
            Key::by(|head| head.uri().query().map(str::to_owned)),
            [get("/?1"), get("/?1"), get("/?2")],
        ),
        (Key::path().and(Key::method()), [a(), a(), get("/a").method("POST")]),
    ];
    for (key, requests) in keys {
        let name = format!("{key:?}");
        let limit = limit("part", "1/h", &ManualClock::new()).key(key);
        let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
        assert_eq!(statuses(&service, requests).await, [200, 429, 200], "{name}");
    }
}

#[tokio::test]
async fn a_request_waits_for_its_key() {
    let owner = |on_missing| -> Limit<ManualClock> {
        let owner = Key::by_async(|head| {
            let token = head.header("authorization").map(str::to_owned);
            async move {
                tokio::task::yield_now().await;
                token?.strip_prefix("token of ").map(str::to_owned)
            }
        });
        limit("owner", "1/h", &ManualClock::new()).key(owner).on_missing(on_missing)
    };
    let service = RateLimitLayer::new(owner(OnMissing::Deny)).unwrap().layer(Inner);
    let of = |token: &str| get("/").header("authorization", token);
    let requests = [of("token of a"), of("token of a"), of("token of b"), of("?")];
    assert_eq!(statuses(&service, requests).await, [200, 429, 200, 429]);
    let reply = ask(&service, of("token of c")).await;
    assert_eq!(reply.header("ratelimit"), Some(r#""owner";r=0;t=3600"#));
}

/// A client can choose any number of paths of a route.
#[tokio::test]
async fn all_paths_of_a_route_are_one_key_and_what_matches_none_has_no_key() {
    let answer = || axum::routing::get(|| async { "here" });
    let by_route = || {
        let limit = limit("route", "1/h", &ManualClock::new()).key(Key::route());
        RateLimitLayer::new(limit.on_missing(OnMissing::Deny)).unwrap()
    };
    let routes = || Router::new().route("/users/{id}", answer()).route("/orders/{id}", answer());
    for (app, nowhere) in
        [(routes().layer(by_route()), 429), (routes().route_layer(by_route()), 404)]
    {
        let mut statuses = Vec::new();
        for path in ["/users/1", "/users/2", "/orders/1", "/users/%32", "/orders/2", "/nowhere"] {
            statuses.push(ask(&app, get(path)).await.status);
        }
        assert_eq!(statuses, [200, 429, 200, 429, 429, nowhere]);
    }
    let reply = ask(&routes().layer(by_route()), get("/nowhere")).await;
    assert!(
        reply.body.contains("counts by `route`, which the request does not have"),
        "{}",
        reply.body
    );
}
