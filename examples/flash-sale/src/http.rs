//! The service: one path for each way of selling, with and without limits, and one that says how the sale stands.
//!
//! Always   Every answer is JSON and its status says the same; who should come back is told when (`Retry-After`).
//! Bound    A body has at most [`BODY_BYTES_MAX`] bytes.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::Answer;
use crate::shop::{Door, Shop};
use crate::way::Way;

/// `{"buyer": 9223372036854775807}` has 30.
pub const BODY_BYTES_MAX: usize = 1_024;

const INDEX: &str = "\
POST /sale/{way}            {\"buyer\": 7}   buy one, through the limits
POST /sale/{way}/unlimited  {\"buyer\": 7}   buy one, straight from the database
GET  /stock                                how the sale stands

ways: naive, old-value, version, condition, for-update
";

/// Who wants one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Whom the limit counts and the order is for. A real shop takes it from the session.
    pub buyer: i64,
}

/// All that the shop answers to.
pub fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/stock", get(stock))
        .route("/sale/{way}", post(guarded))
        .route("/sale/{way}/unlimited", post(open))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shop)
}

/// The path of a way, with or without limits.
pub fn path(door: Door, way: Way) -> String {
    match door {
        Door::Open => format!("/sale/{way}/unlimited"),
        Door::Guarded => format!("/sale/{way}"),
    }
}

async fn stock(State(shop): State<Arc<Shop>>) -> Response {
    match shop.database.tally().await {
        Ok(tally) => Json(tally).into_response(),
        Err(error) => broken(&error),
    }
}

type Body = Result<Json<Request>, JsonRejection>;

async fn guarded(State(shop): State<Arc<Shop>>, Path(way): Path<String>, body: Body) -> Response {
    buy(&shop, Door::Guarded, &way, body).await
}

async fn open(State(shop): State<Arc<Shop>>, Path(way): Path<String>, body: Body) -> Response {
    buy(&shop, Door::Open, &way, body).await
}

async fn buy(shop: &Shop, door: Door, way: &str, body: Body) -> Response {
    let way: Way = match way.parse() {
        Ok(way) => way,
        Err(why) => return refuse(StatusCode::NOT_FOUND, &why),
    };
    let Json(request) = match body {
        Ok(request) => request,
        Err(rejection) => return refuse(rejection.status(), &rejection.body_text()),
    };
    match shop.buy(door, way, request.buyer).await {
        Ok(answer) => respond(answer),
        Err(error) => broken(&error),
    }
}

fn respond(answer: Answer) -> Response {
    let mut response = (answer.status(), Json(answer)).into_response();
    if let Some(seconds) = answer.retry_after_secs() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "answer": "bad_request", "why": why }))).into_response()
}

/// What went wrong is for the operator: it may name hosts and tables.
fn broken(error: &sqlx::Error) -> Response {
    #[expect(clippy::print_stderr, reason = "the log of this program")]
    {
        eprintln!("the database failed: {error}");
    }
    (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "answer": "failed" }))).into_response()
}
