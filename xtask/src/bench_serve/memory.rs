//! Resident memory of a server after a number of keys, sent one after the other over RESP.
//!
//! Always   Every key is checked once and is in debt for a day, so that no server may evict it.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::Scope;
use super::peers::{Peers, Wire};
use super::server::Server;

const KEYS: &[u32] = &[1_000_000, 10_000_000];
/// Requests in one write. After each write, throttlecrab waits for 40 ms.
const BATCH: u32 = 5_000;
/// A reply is an array of five numbers.
const LINES: u32 = 6;
/// Time limit for one batch.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const BYTES_PER_MIB: f64 = 1_048_576.0;

pub(super) fn run(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    for keys in scope.keys(KEYS) {
        println!(
            "\nresident at {keys} keys; redis-cell 0.5 was measured elsewhere: 181 MiB, 1742 MiB"
        );
        let ours = peers.ours(Wire::Resp)?;
        show("ours", &ours, "CL.THROTTLE", keys)?;
        drop(ours);
        if let Some(cell) = peers.redis_cell()? {
            show("redis-cell", &cell, "CL.THROTTLE", keys)?;
        }
        // throttlecrab gets the number of keys in advance, and allocates exactly the memory for them.
        let crab = peers.throttlecrab(Wire::Resp, keys)?;
        show("throttlecrab", &crab, "THROTTLE", keys)?;
    }
    Ok(())
}

fn show(name: &str, server: &Server, command: &str, keys: u32) -> anyhow::Result<()> {
    let before = server.resident_mib()?;
    fill(server, command, keys).with_context(|| format!("{name}, {keys} keys"))?;
    let mib = server.resident_mib()?;
    let bytes = (mib - before) * BYTES_PER_MIB / f64::from(keys);
    println!("  {name:<13} {mib:>6.0} MiB, {bytes:.0} bytes a key");
    Ok(())
}

fn fill(server: &Server, command: &str, keys: u32) -> anyhow::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", server.port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let (mut batch, mut line) = (String::new(), String::new());
    for first in (0..keys).step_by(BATCH as usize) {
        let count = BATCH.min(keys - first);
        batch.clear();
        for key in first..first + count {
            write!(
                batch,
                "*5\r\n${}\r\n{command}\r\n$16\r\nkey:{key:012}\r\n$2\r\n15\r\n$1\r\n1\r\n$5\r\n86400\r\n",
                command.len()
            )?;
        }
        reader.get_mut().write_all(batch.as_bytes())?;
        for _ in 0..count * LINES {
            line.clear();
            ensure!(reader.read_line(&mut line)? > 0, "the server closed the connection");
            ensure!(!line.starts_with('-'), "the server answers {line}");
        }
    }
    Ok(())
}
