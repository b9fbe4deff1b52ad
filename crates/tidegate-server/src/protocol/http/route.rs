//! The table of paths.

use super::problem::Problem;
use crate::config::near;
use http::request::Parts;
use http::{Method, StatusCode};

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Check,
    Peek,
    Reset,
    Refund,
    Acquire,
    Release,
    Authorize,
    Explain,
    /// Explains a request that the body describes.
    ExplainDescribed,
    OpenApi,
    Home,
}

/// Every path with its method. The busiest is first.
pub(crate) const ROUTES: &[(&str, Method, Route)] = &[
    ("/v1/check", Method::POST, Route::Check),
    ("/v1/peek", Method::POST, Route::Peek),
    ("/v1/reset", Method::POST, Route::Reset),
    ("/v1/refund", Method::POST, Route::Refund),
    ("/v1/acquire", Method::POST, Route::Acquire),
    ("/v1/release", Method::POST, Route::Release),
    ("/v1/authorize", Method::GET, Route::Authorize),
    ("/v1/explain", Method::GET, Route::Explain),
    ("/v1/explain", Method::POST, Route::ExplainDescribed),
    ("/openapi.json", Method::GET, Route::OpenApi),
    ("/", Method::GET, Route::Home),
];

/// The paths of the admin listener, to name it to clients that ask here.
pub(crate) const ADMIN_PATHS: &[&str] = &[
    "/metrics",
    "/livez",
    "/readyz",
    "/v1/limits",
    "/v1/top",
    "/v1/reload",
    "/v1/ad-hoc-rules/clear",
    "/dashboard.css",
    "/dashboard.js",
];

/// Maximum length of a path for which a suggestion is searched.
const PATH_BYTES_MAX: usize = 64;

impl Route {
    pub(super) fn of(request: &Parts) -> Result<Self, Problem> {
        find(ROUTES, request)
    }

    /// Returns whether it needs no token, because its response is the same for all clients.
    pub(super) fn is_public(self) -> bool {
        matches!(self, Self::OpenApi | Self::Home)
    }

    /// Returns whether its response may take time: for a wait that the rule demands, or for a round trip to a shared store. A release
    /// is always accepted, because it frees a permit.
    pub(super) fn may_wait(self, is_shared: bool) -> bool {
        match self {
            Self::Authorize => true,
            Self::Release => false,
            _ => is_shared && !self.is_public(),
        }
    }

    /// Returns whether its requests have a body.
    pub(super) fn has_body(self) -> bool {
        !matches!(self, Self::OpenApi | Self::Home | Self::Authorize | Self::Explain)
    }
}

/// Finds the route of a request by path and method, in the table of any listener.
pub(crate) fn find<R: Copy>(routes: &[(&str, Method, R)], request: &Parts) -> Result<R, Problem> {
    let path = request.uri.path();
    let mut of_path = routes.iter().filter(|(known, ..)| *known == path);
    if let Some((.., route)) = of_path.clone().find(|(_, method, _)| request.method == *method) {
        return Ok(*route);
    }
    match (of_path.next(), of_path.next()) {
        (None, _) => Err(not_found(path, routes.iter().map(|(known, ..)| *known))),
        (Some(_), Some(_)) => Err(Problem::method("GET, POST")),
        (Some((_, method, _)), None) => {
            Err(Problem::method(if *method == Method::GET { "GET" } else { "POST" }))
        }
    }
}

/// Returns the problem of an unknown path, with a suggestion.
fn not_found<'a>(path: &str, known: impl Iterator<Item = &'a str>) -> Problem {
    // The path may be one of the other listener.
    if ADMIN_PATHS.contains(&path) {
        let detail = format!("{path} is on the admin listener (`admin` in [server])");
        return Problem::new(StatusCode::NOT_FOUND, detail);
    }
    if ROUTES.iter().any(|(known, ..)| *known == path) {
        let detail = format!("{path} is on the HTTP listener (`http` in [server])");
        return Problem::new(StatusCode::NOT_FOUND, detail);
    }
    let nearest = if path.len() <= PATH_BYTES_MAX { near(path, known) } else { None };
    let detail = match nearest {
        Some(nearest) => format!("there is nothing at this path; did you mean {nearest}?"),
        None => "there is nothing at this path; GET / lists all paths".to_owned(),
    };
    Problem::new(StatusCode::NOT_FOUND, detail)
}
