//! Latency at half of the maximum rate, open loop, for each protocol.
//!
//! All servers get the same load, half of the lowest maximum, because a server looks better at less load.

use std::path::Path;

use super::Scope;
use super::calls::{Call, all_answered, crab_http, number, ours_grpc, ours_http, peak};
use super::peers::{Peers, Wire};
use super::server::{Server, load, words};

const KEYS: u32 = 1_000_000;

fn ours_resp(server: &Server) -> Call<'_> {
    Call { name: "ours", server, target: "127.0.0.1:PORT", flags: Vec::new() }
}

fn crab_resp(server: &Server) -> Call<'_> {
    let flags = vec!["--command".to_owned(), "THROTTLE {key} 15 30 60".to_owned()];
    Call { name: "throttlecrab", server, target: "127.0.0.1:PORT", flags }
}

pub(super) fn run(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    let (ours, crab) = (peers.ours(Wire::Resp)?, peers.throttlecrab(Wire::Resp, KEYS)?);
    compare(&peers.tidegate, scope, "RESP", &[ours_resp(&ours), crab_resp(&crab)])?;
    drop((ours, crab));
    let (ours, crab) = (peers.ours(Wire::Http)?, peers.throttlecrab(Wire::Http, KEYS)?);
    compare(&peers.tidegate, scope, "HTTP", &[ours_http(&ours), crab_http(&crab)])?;
    drop((ours, crab));
    let ours = peers.ours(Wire::Grpc)?;
    compare(&peers.tidegate, scope, "gRPC", &[ours_grpc(&ours)])
}

fn compare(tidegate: &Path, scope: &Scope, wire: &str, calls: &[Call<'_>]) -> anyhow::Result<()> {
    let peaks: anyhow::Result<Vec<f64>> =
        calls.iter().map(|call| peak(tidegate, call, KEYS)).collect();
    let lowest = peaks?.into_iter().fold(f64::INFINITY, f64::min);
    let rate = (lowest / 2.0).floor().max(1.0);
    let seconds = if scope.is_quick { 3 } else { 10 };
    println!(
        "\n{wire} at {rate:.0} requests per second, half of the lowest maximum, open loop; in ms"
    );
    for call in calls {
        let how = words(&format!("--rate {rate:.0} --duration {seconds}"));
        let text = load(tidegate, &[call.line(KEYS), how].concat())?;
        all_answered(&text, call.name)?;
        // In the output, the latencies come before the delays of the generator, which have the same names.
        let ms = |name: &str| number(&text, name).map(|us| us / 1_000.0);
        let late = text.split("\"sent_late_us\"").nth(1).unwrap_or_default();
        println!(
            "  {:<13} {:>7.0}/s  p50 {:>7.3}  p90 {:>7.3}  p99 {:>7.3}  p99.9 {:>7.3}  max {:>7.3}; \
             the generator was late by {:.3} at p99",
            call.name,
            number(&text, "achieved_per_second")?,
            ms("p50")?,
            ms("p90")?,
            ms("p99")?,
            ms("p99.9")?,
            ms("max")?,
            number(late, "p99")? / 1_000.0
        );
    }
    Ok(())
}
