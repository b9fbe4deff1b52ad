//! `/v1/reload`: reads the configuration file again.

use crate::config::ConfigErrors;
use crate::protocol::http::{JSON, Problem, RawResponse, ResponseBuilder};
use crate::server::Server;
use http::StatusCode;
use std::sync::Arc;
use tidegate_http::ByteWriter as _;

/// Reloads the configuration, or returns the errors in it.
pub(super) async fn answer(server: &Arc<Server>) -> Result<RawResponse, Problem> {
    if server.file().is_none() {
        let detail = "there is no configuration file: the server was started without one";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let reader = Arc::clone(server);
    // The file may be on a slow disk.
    let read = tokio::task::spawn_blocking(move || reader.reload()).await.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the reload failed unexpectedly")
    })?;
    let needs_restart = read.map_err(|errors: ConfigErrors| {
        tracing::error!("not reloaded, the old configuration stays:\n{errors}");
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, errors.to_string())
    })?;
    tracing::info!("reloaded: {} limits", server.config().limits.len());
    Ok(ResponseBuilder::new(StatusCode::OK).body(JSON, |out| {
        out.extend_from_slice(br#"{"reloaded":true,"limits":"#);
        out.put_number(server.engine.limits().named().len() as u64);
        out.extend_from_slice(br#","needs_restart":["#);
        for (index, key) in needs_restart.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b"," } else { b"" });
            out.put_json(key);
        }
        out.extend_from_slice(b"]}");
    }))
}
