//! Hostile clients, over real sockets on loopback.
//!
//! Each test has a server of its own, in this process, with short patience. A comment above a test names its
//! reliability test (T40 to T59), at the size for every change.
#![expect(clippy::disallowed_methods, reason = "peers on real sockets take real time")]
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]
#![expect(clippy::naive_bytecount, reason = "a few bytes are counted")]

mod asker;
mod attack;
mod auth;
mod corpus;
mod cost;
mod cross;
mod crowd;
mod flood;
mod frames;
mod harness;
mod http2;
mod keys;
mod messages;
mod overload;
mod pace;
mod peer;
mod processor;
mod reload;
mod slow;
mod strangers;
mod tls;
mod unread;
mod waiting;
