//! Which path is for what.

use super::problem::Problem;
use crate::config::near;
use http::request::Parts;
use http::{Method, StatusCode};

/// What can be asked for.
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
    /// The same about a request that the body describes.
    ExplainAsked,
    OpenApi,
    Home,
}

/// Every path, its method, and what it is for. The busiest stands first.
pub(crate) const ROUTES: &[(&str, Method, Route)] = &[
    ("/v1/check", Method::POST, Route::Check),
    ("/v1/peek", Method::POST, Route::Peek),
    ("/v1/reset", Method::POST, Route::Reset),
    ("/v1/refund", Method::POST, Route::Refund),
    ("/v1/acquire", Method::POST, Route::Acquire),
    ("/v1/release", Method::POST, Route::Release),
    ("/v1/authorize", Method::GET, Route::Authorize),
    ("/v1/explain", Method::GET, Route::Explain),
    ("/v1/explain", Method::POST, Route::ExplainAsked),
    ("/openapi.json", Method::GET, Route::OpenApi),
    ("/", Method::GET, Route::Home),
];

/// No path that anybody meant is longer than this.
const PATH_BYTES_MAX: usize = 64;

impl Route {
    pub(super) fn of(request: &Parts) -> Result<Self, Problem> {
        find(ROUTES, request)
    }

    /// Whether it needs no token: it tells nothing about anybody.
    pub(super) fn is_public(self) -> bool {
        matches!(self, Self::OpenApi | Self::Home)
    }

    /// Whether its answer may have to be waited for: for a turn, or where limits are in a store that others share. What
    /// is given back is taken however many wait, as it makes room.
    pub(super) fn may_wait(self, is_shared: bool) -> bool {
        match self {
            Self::Authorize => true,
            Self::Release => false,
            _ => is_shared && !self.is_public(),
        }
    }

    /// Whether it has a body to read.
    pub(super) fn has_body(self) -> bool {
        !matches!(self, Self::OpenApi | Self::Home | Self::Authorize | Self::Explain)
    }
}

/// Where a request goes, by its path and method: for every listener that speaks HTTP.
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

/// There is no such path; perhaps one of these was meant.
fn not_found<'a>(path: &str, known: impl Iterator<Item = &'a str>) -> Problem {
    // Each listener knows its own paths, so what is known elsewhere is not known here.
    if crate::protocol::admin::has_path(path) {
        let detail =
            format!("{path} is not here: the admin listener answers it (`admin` in [server])");
        return Problem::new(StatusCode::NOT_FOUND, detail);
    }
    if ROUTES.iter().any(|(known, ..)| *known == path) {
        let detail =
            format!("{path} is not here: the HTTP listener answers it (`http` in [server])");
        return Problem::new(StatusCode::NOT_FOUND, detail);
    }
    let meant = if path.len() <= PATH_BYTES_MAX { near(path, known) } else { None };
    let detail = match meant {
        Some(meant) => format!("there is nothing at this path; did you mean {meant}?"),
        None => "there is nothing at this path; GET / says what there is".to_owned(),
    };
    Problem::new(StatusCode::NOT_FOUND, detail)
}
