//! Whether it lives, and whether it wants to be asked.

use crate::http::{Answered, Page, parameter};
use crate::server::Server;
use http::{HeaderValue, StatusCode};
use std::sync::atomic::Ordering;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// It does, or nobody would answer.
pub(super) fn live() -> Answered {
    Page::new(StatusCode::OK).body(TEXT, |out| out.extend_from_slice(b"ok\n"))
}

/// Not any more while it drains. An old configuration is no reason not to ask: it is in force.
pub(super) fn ready(server: &Server, query: Option<&str>) -> Answered {
    let is_draining = server.status.is_draining.load(Ordering::Relaxed);
    let is_stale = server.status.is_config_stale.load(Ordering::Relaxed);
    let status = if is_draining { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Page::new(status).body(TEXT, |out| {
        if parameter(query, "verbose").is_some() {
            let drain = if is_draining { "[-] draining\n" } else { "[+] not draining\n" };
            let config = if is_stale {
                "[!] the configuration could not be read again; the one before it is in force\n"
            } else {
                "[+] the configuration is in force\n"
            };
            out.extend_from_slice(drain.as_bytes());
            out.extend_from_slice(config.as_bytes());
        }
        out.extend_from_slice(if is_draining { b"draining\n" } else { b"ok\n" });
    })
}
