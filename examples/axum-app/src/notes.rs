//! Notes that users write and read.
//!
//! Bound    At most [`NOTES_MAX`] are kept; then the oldest is dropped.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Router};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::User;

const NOTES_MAX: usize = 1_000;

type Notes = Arc<Mutex<VecDeque<(String, String)>>>;

pub(crate) fn routes() -> Router {
    Router::new().route("/notes", get(read).post(write)).with_state(Notes::default())
}

async fn read(State(notes): State<Notes>, Extension(User(user)): Extension<User>) -> String {
    let notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    let own = notes.iter().filter(|(writer, _)| *writer == user);
    let lines: Vec<&str> = own.map(|(_, note)| note.as_str()).collect();
    lines.join("\n")
}

async fn write(
    State(notes): State<Notes>,
    Extension(User(user)): Extension<User>,
    note: String,
) -> StatusCode {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    if notes.len() == NOTES_MAX {
        notes.pop_front();
    }
    notes.push_back((user, note));
    StatusCode::CREATED
}
