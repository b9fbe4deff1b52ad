//! Hostile clients, over real sockets on loopback.
//!
//! Each test starts its own server in this process, with short time limits. A comment above a test names the
//! reliability test (T40 to T59) that it belongs to. The sizes are small enough to run on every change.
#![expect(clippy::disallowed_methods, reason = "clients on real sockets take real time")]
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]
#![expect(clippy::naive_bytecount, reason = "the tests count bytes in short inputs")]

mod attack;
mod attack_cost;
mod auth;
mod check_client;
mod connection_maximum;
mod corpus;
mod cpu_time;
mod cross_site;
mod frames;
mod harness;
mod http2;
mod keys;
mod latency;
mod many_slow_clients;
mod messages;
mod overload;
mod peer;
mod reload;
mod slow;
mod tls;
mod unauthenticated;
mod unread;
mod waiting;
