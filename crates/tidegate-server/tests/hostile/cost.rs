//! T46: what attacks on HTTP/2 cost other clients and the CPU.

use crate::attack::{ATTACKS, FLOODS, Says, attacked, begun};
use crate::frames::{
    DATA, PING, PREFACE, SETTINGS_KIND, WINDOW_UPDATE, calls, frame, goodbye, whole,
};
use crate::harness::{PATIENCE, Peer, secs, start_alone};
use crate::pace::{assert_hardly_slower, assert_mostly};
use crate::processor::{assert_idle, workers_time_of};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::net::{Running, Wire};

/// Until who has been sent away comes again. On two cores, who never pauses takes from the server what it has of its own.
const PAUSE: Duration = Duration::from_millis(1);
/// What the server tells who asks over HTTP/2.
const STREAMS_MAX: usize = 1_024;

fn attacks() -> impl Iterator<Item = (&'static str, Says<usize>)> {
    ATTACKS.into_iter().map(|(name, _, what)| (name, what)).chain(FLOODS)
}

// T46
#[test]
fn harmless_clients_are_answered_during_an_attack() {
    let running = start_alone(|_| ());
    for (name, what) in attacks() {
        assert_hardly_slower((Wire::Grpc, &running), 3, name, || {
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                attacked(&running, until, what);
                std::thread::park_timeout(PAUSE);
            }
        });
    }
    running.stop().unwrap();
}

/// What the workers need for a call of somebody who asks as fast as it can.
fn call_time(running: &Running) -> Duration {
    const PIPELINE: usize = 64;
    const PIPELINES: usize = 30;
    let mut peer = begun(running);
    peer.say(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]));
    let ((), time, _) = workers_time_of(|| {
        for number in 0..PIPELINES {
            peer.say(calls(number * PIPELINE, PIPELINE));
            let (mut heard, mut piece) = (Vec::new(), [0; 4_096]);
            while whole(&heard).0.iter().filter(|frame| frame.kind == DATA).count() < PIPELINE {
                let read = peer.0.read(&mut piece).expect("it is answered");
                heard.extend_from_slice(&piece[..read]);
            }
        }
    });
    time / u32::try_from(PIPELINES * PIPELINE).unwrap()
}

/// Before it is sent away, an attacker costs no more than so many calls, and two for each stream that was looked at.
const CALLS_MAX: u32 = 200;

// T46
#[test]
fn an_attack_is_over_before_it_costs_much_and_costs_nothing_after() {
    let running = start_alone(|_| ());
    for (name, what) in attacks() {
        assert_mostly(name, || {
            let until = Instant::now() + secs(1);
            let (heard, time, took) = workers_time_of(|| attacked(&running, until, what));
            // What a thread has had is told a little late.
            let a_core = took + Duration::from_millis(5);
            assert!(time <= a_core, "{name}: it took {time:?} of processors in {took:?}");
            let streams = goodbye(&heard).map_or(0, |goodbye| goodbye.streams);
            [(time, call_time(&running) * (CALLS_MAX + 2 * streams))]
        });
        assert_idle(name);
    }
    running.stop().unwrap();
}

/// Peers that let nothing of any answer through, each with as many calls as there may be.
fn stalled(running: &Running, peers: usize) -> Vec<Peer> {
    // INITIAL_WINDOW_SIZE (4) is 0.
    let stall = frame(SETTINGS_KIND, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let stalled = (0..peers).map(|_| {
        let mut peer = Peer::new(running.addresses.grpc);
        assert!(peer.say([PREFACE, &stall].concat()));
        assert!(peer.say(calls(0, STREAMS_MAX)), "so many are taken");
        peer
    });
    stalled.collect()
}

// T46
#[test]
fn blocked_answers_cost_nothing_while_they_wait() {
    let running = start_alone(|_| ());
    let peers = stalled(&running, 4);
    assert_idle("all wait");
    assert_eq!(running.server.status.connections.sum(), 4, "they are still here");
    drop(peers);
    running.stop().unwrap();
}

// T46
#[test]
fn a_client_that_blocks_answers_is_closed_in_time_even_if_it_pings() {
    let running = start_alone(|config| config.server.caps.idle = secs(1));
    let since = Instant::now();
    let mut peers = stalled(&running, 2);
    let (mut pings, mut silent) = (peers.remove(0), peers.remove(0));
    while pings.say(frame(PING, 0, 0, &[1; 8])) {
        assert!(since.elapsed() < PATIENCE, "it may ping for ever");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    silent.ended_after();
    // As many seconds as in `slow.rs`, and for the same reasons.
    assert!(since.elapsed() < secs(4), "they may stay for {:?}", since.elapsed());
    running.stop().unwrap();
}
