//! A small API, and the limits around it.
//!
//! ```text
//! /hello            per address; a stricter limit is tried in shadow mode
//! /notes            the same, and per user
//! /report           the same, but a request costs ten times as much; four in flight, others wait a little
//! /news             per address and for all clients together; over that limit, yesterday's news
//! /metrics          the decisions of the limits; not limited
//! ```

mod counters;
mod notes;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, Response};
use axum::middleware::{self, Next};
use axum::routing::get;
use counters::Counters;
use std::sync::Arc;
use std::time::Duration;
use tidegate_tower::{ConcurrencyLayer, Key, Limit, LimitError, Log, OnMissing, RateLimitLayer};

/// The rules of the limits.
#[derive(Clone, Debug)]
pub struct Rules {
    /// For each client address.
    pub per_ip: &'static str,
    /// The same, in shadow mode.
    pub per_ip_tried: &'static str,
    /// For each user.
    pub per_user: &'static str,
    /// Reports in flight.
    pub reports: &'static str,
    /// Today's news, for all clients together.
    pub news: &'static str,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            per_ip: "20/s burst 10",
            per_ip_tried: "5/s",
            per_user: "100/min burst 30",
            reports: "concurrency 4",
            news: "5/s",
        }
    }
}

/// The user of a request, which an outer layer adds to its extensions.
#[derive(Clone, Debug)]
struct User(String);

/// Makes the app.
pub fn app(rules: &Rules) -> Result<Router, LimitError> {
    let counters = Arc::new(Counters::default());
    let count = || {
        let counters = Arc::clone(&counters);
        move |event: &tidegate_tower::Event<'_>| counters.count(event)
    };

    let per_ip = RateLimitLayer::per_ip(rules.per_ip)?
        .and(Limit::new("per-ip-tried", rules.per_ip_tried)?.key(Key::ip()).shadow())?
        .observe(Log)
        .observe(count());
    // Clones of a limit count together.
    let user = Limit::new("per-user", rules.per_user)?
        .key(Key::extension(|user: &User| user.0.clone()))
        .on_missing(OnMissing::Deny)
        .refund_if(|status, _| status.is_server_error());
    let per_user = RateLimitLayer::new(user.clone())?.observe(count());
    let per_user_report = RateLimitLayer::new(user.cost(10))?.observe(count());
    let reports =
        ConcurrencyLayer::for_all(rules.reports)?.wait(Duration::from_millis(200)).observe(count());
    let news = RateLimitLayer::for_all(rules.news)?
        .fallback(|_, _| Response::new("yesterday's news\n"))
        .observe(count());

    let limited = Router::new()
        .route("/hello", get(|| async { "hello\n" }))
        .route("/news", get(|| async { "today's news\n" }).layer(news))
        .merge(notes::routes().layer(per_user))
        .merge(Router::new().route("/report", get(report)).layer(reports).layer(per_user_report))
        .layer(per_ip)
        .layer(middleware::from_fn(sign_in));
    Ok(limited.route("/metrics", get(move || async move { counters.text() })))
}

/// Adds the user to the request. A real program would check a session or a token.
async fn sign_in(mut request: Request, next: Next) -> axum::response::Response {
    const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
    if let Some(user) = request.headers().get(API_KEY).and_then(|key| key.to_str().ok()) {
        let user = User(user.to_owned());
        request.extensions_mut().insert(user);
    }
    next.run(request).await
}

/// Responds after a while, as reports do.
async fn report() -> String {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let months: Vec<String> = (1..=12).map(|month| format!("month {month}: fine")).collect();
    months.join("\n")
}
