//! The programs in `examples/` that show the worked scenarios, run: they say what the scenario says (S1 to S4, S6, P4).
//!
//! What they must print is in the files beside this one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/api_client.rs"]
mod api_client;
#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/endpoints.rs"]
mod endpoints;
#[cfg(all(feature = "stream", feature = "tokio"))]
#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/messages.rs"]
mod messages;
#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/posts.rs"]
mod posts;
#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/shopping.rs"]
mod shopping;
#[cfg(feature = "zones")]
#[expect(dead_code, reason = "it is the program's own `main`")]
#[path = "../../examples/sign_in.rs"]
mod sign_in;

use std::error::Error;

/// Returns the output of the program.
fn printed(show: impl FnOnce(&mut Vec<u8>) -> Result<(), Box<dyn Error>>) -> String {
    let mut out = Vec::new();
    show(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

// S1.
#[test]
fn one_order_in_thirty_minutes() {
    assert_eq!(printed(shopping::show), include_str!("shopping.txt"));
}

// S2.
#[test]
fn fifty_in_ten_seconds_smoothed() {
    assert_eq!(printed(api_client::show), include_str!("api_client.txt"));
}

// S3.
#[cfg(feature = "zones")]
#[test]
fn one_sign_in_a_day_of_shanghai() {
    assert_eq!(printed(sign_in::show), include_str!("sign_in.txt"));
}

// S4.
#[test]
fn thirty_replies_a_minute_and_fifteen_at_once() {
    assert_eq!(printed(posts::show), include_str!("posts.txt"));
}

// S6.
/// Threads race differently each time; what comes of it does not.
#[test]
fn threads_on_permits_on_a_queue_and_on_a_window() {
    for _ in 0..20 {
        assert_eq!(printed(endpoints::show), include_str!("endpoints.txt"));
    }
}

// P4.
#[cfg(all(feature = "stream", feature = "tokio"))]
#[test]
fn messages_are_handled_at_a_steady_rate_by_two_at_once() {
    assert_eq!(printed(messages::show), include_str!("messages.txt"));
}
