//! Reading the configuration again, on demand.

use crate::config::ConfigErrors;
use crate::protocol::http::{Answered, JSON, Page, Problem};
use crate::server::Server;
use http::StatusCode;
use std::sync::Arc;
use tidegate_http::ByteWriter as _;

/// Puts what the file says in force, or says what is wrong with it.
pub(super) async fn answer(server: &Arc<Server>) -> Result<Answered, Problem> {
    if server.file().is_none() {
        let detail = "there is no configuration file: the server was started without one";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    }
    let reader = Arc::clone(server);
    // A file may be on a slow disk.
    let read = tokio::task::spawn_blocking(move || reader.reload())
        .await
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "reading it broke off"))?;
    let needs_restart = read.map_err(|errors: ConfigErrors| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, errors.to_string())
    })?;
    Ok(Page::new(StatusCode::OK).body(JSON, |out| {
        out.extend_from_slice(br#"{"reloaded":true,"limits":"#);
        out.put_number(server.engine.limits().named().len() as u64);
        out.extend_from_slice(br#","needs_restart":["#);
        for (place, key) in needs_restart.iter().enumerate() {
            out.extend_from_slice(if place > 0 { b"," } else { b"" });
            out.put_json(key);
        }
        out.extend_from_slice(b"]}");
    }))
}
