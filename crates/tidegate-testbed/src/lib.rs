//! Real Redis and PostgreSQL servers and a network with faults, for tests.
//!
//! Not published. A store is tested against the server that it is written for, because a fake of our own would share
//! our mistakes. Only redis-cell 0.5, which is in no registry, is reimplemented here from its documentation, and
//! `FakeRedis` sends what Redis never would.
//!
//! Always   A missing program fails the test with the name of the package to install. No test is skipped.
//! Always   Every process ends when its value is dropped, and also if the test is killed.
//! Always   Servers listen on loopback only. The port of a server that is down stays reserved, so that it can restart.
//! Needs    Redis 7 or later (`apt-get install redis-server`), which has `cluster-port` and `SENTINEL DEBUG`;
//!          PostgreSQL (`apt-get install postgresql`), for tests that start it.

#![expect(
    clippy::missing_panics_doc,
    reason = "every function of a testbed panics if it fails, which fails the test"
)]

mod certificate;
mod cluster;
mod directory;

mod port;
pub mod postgres;
mod process;
mod program;
pub mod proxy;
mod random;
pub mod redis;
mod redis_cell;
mod sentinels;
mod wait;

pub use certificate::{CertificateFiles, self_signed};
pub use cluster::{Cluster, Migration, SLOTS};
pub use postgres::PostgresServer;
pub use proxy::{Fault, FaultProxy};
pub use random::Random;
pub use redis::{Client, FakeRedis, RedisServer, Reply};
pub use redis_cell::{OWN_TABLE, RedisCell};
pub use sentinels::Sentinels;
pub use wait::{PATIENCE, eventually};
