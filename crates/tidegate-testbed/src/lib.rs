//! Real Redis and PostgreSQL servers and a faulty network for tests: started, spoken to, disturbed and ended.
//!
//! Not published. A store is tested against the server that it is written for, because a server that we wrote
//! ourselves would share our mistakes. redis-cell 0.5, which is in no registry, is described once more instead.
//!
//! Always   What cannot be had fails the test and says why, down to the package to install. Nothing is skipped.
//! Always   Every process that is started is ended with its value, and also if the test is killed.
//! Always   Loopback only. Nobody else is given the port of a server that is down, so that it can come back.
//! Needs    Redis 7 or later (`apt-get install redis-server`), which has `cluster-port` and `SENTINEL DEBUG`;
//!          PostgreSQL (`apt-get install postgresql`), for those who start it.

#![expect(
    clippy::missing_panics_doc,
    reason = "a testbed that cannot do what it is asked for fails the test, wherever that is"
)]

mod certificate;
mod cluster;
mod directory;
mod patience;
mod port;
pub mod postgres;
mod process;
mod program;
pub mod proxy;
mod random;
pub mod redis;
mod redis_cell;
mod sentinels;

pub use certificate::{CertificateFiles, self_signed};
pub use cluster::{Cluster, Migration, SLOTS};
pub use patience::{PATIENCE, eventually};
pub use postgres::PostgresServer;
pub use proxy::{Fault, FaultProxy};
pub use random::Random;
pub use redis::{Client, RedisServer, Reply};
pub use redis_cell::{OWN_TABLE, RedisCell};
pub use sentinels::Sentinels;
