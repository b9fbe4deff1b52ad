//! `[store]`: the store of limits that several servers share.
//!
//! Always   A line with a URL that contains a password is never shown.

use super::report::Problem;
use super::table::Table;
use crate::config::settings::{CheckUrl, StoreConfig, StoreUrl};
use std::time::Duration;

/// A longer wait would help no caller: most have given up before.
pub(super) const DEADLINE_MAX: Duration = Duration::from_secs(10);
/// A round trip takes at least this long.
pub(super) const DEADLINE_MIN: Duration = Duration::from_millis(1);
const CONNECTIONS_MAX: u64 = 64;
const NODES_MAX: u64 = 10_000;
const PREFIX_BYTES_MAX: usize = 64;

/// Reads the store. Returns `None` if its URL is missing or invalid, after reporting the error.
pub(super) fn read(table: &Table<'_>, check_url: CheckUrl) -> Option<StoreConfig> {
    let url = url(table, check_url);
    let deadline = table.get("deadline").and_then(|it| it.duration(DEADLINE_MIN..=DEADLINE_MAX));
    let connections = table.get("connections").and_then(|value| value.size(1..=CONNECTIONS_MAX));
    let prefix = prefix(table);
    let nodes = table.get("nodes").and_then(|value| value.whole(1..=NODES_MAX));
    let lease = table.get("lease").and_then(|value| value.flag());
    table.refuse_unknown();
    let default = StoreConfig::at(url?);
    Some(StoreConfig {
        deadline: deadline.unwrap_or(default.deadline),
        connections: connections.unwrap_or(default.connections),
        prefix: prefix.unwrap_or(default.prefix),
        nodes: nodes.unwrap_or(default.nodes),
        lease: lease.unwrap_or(default.lease),
        url: default.url,
    })
}

fn url(table: &Table<'_>, check_url: CheckUrl) -> Option<StoreUrl> {
    let mut value = table.need("url", "such as `url = \"redis://127.0.0.1:6379\"`")?;
    let has_password = |text: &str| text.contains('@') || text.contains("sentinel=");
    value.is_secret |= value.read.as_str().is_some_and(has_password);
    let text = value.text()?;
    match check_url(text.read) {
        Ok(()) => Some(StoreUrl::new(text.read)),
        Err(error) => {
            let problem = Problem::new(format!("`url` is not the address of a store: {error}"));
            text.error(problem.hint("write, for example, \"redis://127.0.0.1:6379\""));
            None
        }
    }
}

fn prefix(table: &Table<'_>) -> Option<String> {
    let text = table.get("prefix")?.text()?;
    // Braces would choose the part of a key that a cluster hashes.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    if (1..=PREFIX_BYTES_MAX).contains(&text.read.len()) && text.read.bytes().all(is_plain) {
        return Some(text.read.to_owned());
    }
    let problem = Problem::new("this is not a valid prefix of keys");
    let hint = format!("use 1 to {PREFIX_BYTES_MAX} visible characters, but no braces");
    text.error(problem.hint(hint));
    None
}
