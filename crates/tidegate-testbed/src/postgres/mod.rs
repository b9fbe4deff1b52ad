//! `postgres` as a process: made, started, ended.

mod account;
mod server;

pub use server::PostgresServer;
