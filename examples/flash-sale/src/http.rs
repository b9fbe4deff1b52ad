//! The service: one path for each way of selling, with and without limits, and one for the state of the sale.
//!
//! Always   Every reply is JSON with a matching status; replies that ask to retry have `Retry-After`.
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

use crate::reply::SaleReply;
use crate::shop::{Access, Shop};
use crate::way::Way;

/// `{"buyer": 9223372036854775807}` has 30.
pub const BODY_BYTES_MAX: usize = 1_024;

const INDEX: &str = "\
POST /sale/{way}            {\"buyer\": 7}   buy one, through the limits
POST /sale/{way}/unlimited  {\"buyer\": 7}   buy one, straight from the database
GET  /stock                                the state of the sale

ways: naive, old-value, version, condition, for-update
";

/// A request to buy one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The buyer, which is the key of the limit. A real shop takes it from the session.
    pub buyer: i64,
}

/// Returns all routes of the shop.
pub fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/stock", get(stock))
        .route("/sale/{way}", post(guarded))
        .route("/sale/{way}/unlimited", post(open))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shop)
}

/// Returns the path of a way, with or without limits.
pub fn path(access: Access, way: Way) -> String {
    match access {
        Access::Open => format!("/sale/{way}/unlimited"),
        Access::Guarded => format!("/sale/{way}"),
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
    buy(&shop, Access::Guarded, &way, body).await
}

async fn open(State(shop): State<Arc<Shop>>, Path(way): Path<String>, body: Body) -> Response {
    buy(&shop, Access::Open, &way, body).await
}

async fn buy(shop: &Shop, access: Access, way: &str, body: Body) -> Response {
    let way: Way = match way.parse() {
        Ok(way) => way,
        Err(why) => return refuse(StatusCode::NOT_FOUND, &why),
    };
    let Json(request) = match body {
        Ok(request) => request,
        Err(rejection) => return refuse(rejection.status(), &rejection.body_text()),
    };
    match shop.buy(access, way, request.buyer).await {
        Ok(answer) => respond(answer),
        Err(error) => broken(&error),
    }
}

fn respond(answer: SaleReply) -> Response {
    let mut response = (answer.status(), Json(answer)).into_response();
    if let Some(seconds) = answer.retry_after_secs() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "answer": "bad_request", "why": why }))).into_response()
}

/// Logs the error, which may name hosts and tables, and returns a reply without it.
fn broken(error: &sqlx::Error) -> Response {
    #[expect(clippy::print_stderr, reason = "the log of this program")]
    {
        eprintln!("the database failed: {error}");
    }
    (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "answer": "failed" }))).into_response()
}
