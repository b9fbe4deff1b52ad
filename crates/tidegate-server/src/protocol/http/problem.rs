//! Error responses: problems (RFC 9457) whose `detail` says what is wrong and what to do.

use super::response::{PROBLEM, RawResponse, ResponseBuilder};
use crate::config;
use crate::engine::{self, CheckError, NoSuchLimit, NotCheckable, TooManyLeases};
use crate::escape::Escaped;
use crate::server::Busy;
use crate::store::{InvalidIdempotencyKey, StoreError};
use http::StatusCode;
use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use std::borrow::Cow;
use tidegate::RuleError;
use tidegate_http::{ByteWriter as _, FieldWriter as _, PROBLEM_TYPES};

/// Why a request gets no decision.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: Cow<'static, str>,
    /// With status 405: the allowed methods.
    allow: Option<&'static str>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), allow: None }
    }

    /// Returns a problem with status 400.
    pub(crate) fn bad(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the problem of a rule that cannot be parsed.
    pub(crate) fn no_rule(text: &str, error: &RuleError) -> Self {
        Self::bad(format!("`{text}` is not a rule: {}", engine::at(error, text)))
    }

    /// Returns a problem with status 405.
    pub(crate) fn method(allow: &'static str) -> Self {
        let detail = format!("this path is for {allow}");
        let allow = Some(allow);
        Self { status: StatusCode::METHOD_NOT_ALLOWED, detail: detail.into(), allow }
    }

    /// Adds the index of the entry in `checks` that has the problem.
    pub(crate) fn in_check(self, index: usize) -> Self {
        let detail = format!("checks[{index}]: {}", self.detail);
        Self { detail: detail.into(), ..self }
    }

    pub(crate) fn answer(&self) -> RawResponse {
        let mut page = ResponseBuilder::new(self.status);
        if let Some(allow) = self.allow {
            page.field(ALLOW, |out| out.extend_from_slice(allow.as_bytes()));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = br#"Bearer realm="tidegate""#;
            page.field(WWW_AUTHENTICATE, |out| out.extend_from_slice(challenge));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            page.field(RETRY_AFTER, |out| out.push(b'1'));
        }
        page.body(PROBLEM, |out| self.write(out))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":"#);
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                out.put_json(&format!("{PROBLEM_TYPES}temporary-reduced-capacity"));
            }
            _ => out.put_json("about:blank"),
        }
        out.extend_from_slice(br#","title":"#);
        out.put_json(self.status.canonical_reason().unwrap_or("Error"));
        out.extend_from_slice(br#","status":"#);
        out.put_number(self.status.as_u16().into());
        out.extend_from_slice(br#","detail":"#);
        // It may repeat a client's input.
        let detail = Escaped::new(self.detail.as_bytes()).line_break("\n");
        out.put_json(&detail.to_string());
        out.push(b'}');
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<TooManyLeases> for Problem {
    fn from(error: TooManyLeases) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<InvalidIdempotencyKey> for Problem {
    fn from(error: InvalidIdempotencyKey) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<NotCheckable> for Problem {
    fn from(error: NotCheckable) -> Self {
        Self::bad(format!("{error}: ask /v1/acquire, and /v1/release then"))
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::NotCheckable(error) => error.into(),
            CheckError::Store(error) => error.into(),
        }
    }
}

impl From<Busy> for Problem {
    fn from(busy: Busy) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, busy.to_string())
    }
}

impl From<NoSuchLimit> for Problem {
    fn from(error: NoSuchLimit) -> Self {
        match &error {
            NoSuchLimit::Neither { name, .. } if config::is_limit_name(name) => {
                Self::new(StatusCode::NOT_FOUND, error.to_string())
            }
            // No limit can have this name, so the client meant a rule.
            NoSuchLimit::Neither { name, error, .. } => Self::no_rule(name, error),
            NoSuchLimit::NoAdHocRules(_) => Self::new(StatusCode::FORBIDDEN, error.to_string()),
            _ => Self::bad(error.to_string()),
        }
    }
}
