//! Runs `redis-server` as a child process.

mod builder;
mod certificates;
mod client;
mod fake;
mod reply;
mod server;

pub use builder::Builder;
pub use client::Client;
pub use fake::FakeRedis;
pub use reply::Reply;
pub use server::RedisServer;
