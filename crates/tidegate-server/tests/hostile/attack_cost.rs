//! T46: how much attacks on HTTP/2 delay other clients, and how much CPU time they cost.

use crate::attack::{ATTACKS, FLOODS, RoundBytes, attack, connect_http2};
use crate::cpu_time::{assert_idle, workers_time_of};
use crate::frames::{
    DATA, PING, PREFACE, SETTINGS_TYPE, WINDOW_UPDATE, calls, complete_frames, frame, goaway,
};
use crate::harness::{PATIENCE, Peer, secs, start_exclusive};
use crate::latency::{assert_hardly_slower, assert_medians};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::net::{Running, Wire};

/// Pause before an attacker reconnects. On two cores, an attacker without a pause takes CPU time from the server.
const PAUSE: Duration = Duration::from_millis(1);
/// The server's `SETTINGS_MAX_CONCURRENT_STREAMS`.
const STREAMS_MAX: usize = 1_024;

fn attacks() -> impl Iterator<Item = (&'static str, RoundBytes<usize>)> {
    ATTACKS.into_iter().map(|(name, _, what)| (name, what)).chain(FLOODS)
}

// T46
#[test]
fn harmless_clients_are_answered_during_an_attack() {
    let running = start_exclusive(|_| ());
    for (name, what) in attacks() {
        assert_hardly_slower((Wire::Grpc, &running), 3, name, || {
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                attack(&running, until, what);
                std::thread::park_timeout(PAUSE);
            }
        });
    }
    running.stop().unwrap();
}

/// Returns the CPU time per call that the workers need for a client that sends as fast as it can.
fn call_time(running: &Running) -> Duration {
    const PIPELINE: usize = 64;
    const PIPELINES: usize = 30;
    let mut peer = connect_http2(running);
    peer.send(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]));
    let ((), time, _) = workers_time_of(|| {
        for number in 0..PIPELINES {
            peer.send(calls(number * PIPELINE, PIPELINE));
            let (mut received, mut piece) = (Vec::new(), [0; 4_096]);
            while complete_frames(&received).0.iter().filter(|frame| frame.kind == DATA).count()
                < PIPELINE
            {
                let read = peer.0.read(&mut piece).expect("it is answered");
                received.extend_from_slice(&piece[..read]);
            }
        }
    });
    time / u32::try_from(PIPELINES * PIPELINE).unwrap()
}

/// An attacker costs at most as much CPU time as this number of calls, and two calls for each stream that the server
/// processed.
const CALLS_MAX: u32 = 200;

// T46
#[test]
fn an_attack_ends_before_it_costs_much_and_costs_nothing_afterwards() {
    let running = start_exclusive(|_| ());
    for (name, what) in attacks() {
        assert_medians(name, || {
            let until = Instant::now() + secs(1);
            let (received, time, took) = workers_time_of(|| attack(&running, until, what));
            // Linux updates a thread's CPU time with a small delay.
            let a_core = took + Duration::from_millis(5);
            assert!(time <= a_core, "{name}: the workers used {time:?} of CPU time in {took:?}");
            let streams = goaway(&received).map_or(0, |goaway| goaway.streams);
            [(time, call_time(&running) * (CALLS_MAX + 2 * streams))]
        });
        assert_idle(name);
    }
    running.stop().unwrap();
}

/// Returns clients with a flow-control window of 0, each with the maximum number of calls.
fn stalled(running: &Running, peers: usize) -> Vec<Peer> {
    // INITIAL_WINDOW_SIZE (4) is 0.
    let stall = frame(SETTINGS_TYPE, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let stalled = (0..peers).map(|_| {
        let mut peer = Peer::new(running.addresses.grpc);
        assert!(peer.send([PREFACE, &stall].concat()));
        assert!(peer.send(calls(0, STREAMS_MAX)), "the server accepts the calls");
        peer
    });
    stalled.collect()
}

// T46
#[test]
fn blocked_answers_cost_nothing_while_they_wait() {
    let running = start_exclusive(|_| ());
    let peers = stalled(&running, 4);
    assert_idle("the workers are idle while all answers are blocked");
    assert_eq!(running.server.status.connections.sum(), 4, "the connections are still open");
    drop(peers);
    running.stop().unwrap();
}

// T46
#[test]
fn a_client_that_blocks_answers_is_closed_in_time_even_if_it_pings() {
    let running = start_exclusive(|config| config.server.caps.idle = secs(1));
    let since = Instant::now();
    let mut peers = stalled(&running, 2);
    let (mut pings, mut silent) = (peers.remove(0), peers.remove(0));
    while pings.send(frame(PING, 0, 0, &[1; 8])) {
        assert!(since.elapsed() < PATIENCE, "the server lets the client ping forever");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    silent.time_until_closed();
    // The time of `IN_TIME` in `slow.rs`, for the same reasons.
    assert!(since.elapsed() < secs(4), "the connections were open for {:?}", since.elapsed());
    running.stop().unwrap();
}
