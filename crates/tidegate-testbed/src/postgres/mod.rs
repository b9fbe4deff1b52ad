//! Runs `postgres` as a child process.

mod account;
mod server;

pub use server::PostgresServer;
