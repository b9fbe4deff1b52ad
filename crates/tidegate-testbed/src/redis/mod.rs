//! Runs `redis-server` as a child process.

mod builder;
mod certificates;
mod client;
mod reply;
mod server;

pub use builder::Builder;
pub use client::Client;
pub use reply::Reply;
pub use server::RedisServer;
