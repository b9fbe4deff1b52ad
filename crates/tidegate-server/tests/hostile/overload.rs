//! T47: more requests than the server can answer.
//!
//! With limits in memory nothing is rejected, because a rejection would take as long as a decision. The tests show instead that
//! three times the capacity lowers goodput by less than a fifth, that waiting requests stay in the clients' sockets and cost the
//! server nothing, and that the effects end with the overload. `waiting.rs` tests requests that wait and are rejected.

use crate::frames::{DATA, PREFACE, SETTINGS, WINDOW_UPDATE, calls, complete_frames, frame};
use crate::harness::{
    PATIENCE, Peer, array, assert_grew_less, assert_serves, eventually, rss_bytes, secs,
    start_exclusive,
};
use crate::latency::{assert_hardly_slower, assert_medians, latencies_during, p99};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::net::{self, Running};

const PIPELINE: usize = 64;
/// Number of clients that send as many requests as they can: together three times the capacity.
const CLIENTS: usize = 6;
/// The server's `SETTINGS_MAX_CONCURRENT_STREAMS`.
const STREAMS_MAX: usize = 1_024;
/// How long the peak goodput is measured.
const PEAK_TIME: Duration = Duration::from_millis(200);
/// Time until the load has reached its maximum: answers in this time do not count.
const RAMP_UP: Duration = Duration::from_millis(200);
/// How long the goodput under overload is measured.
const OVERLOAD_TIME: Duration = Duration::from_millis(400);
/// Time that a client waits for answers before it retries.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The tests compare how long this number of answers takes.
const ANSWERS: f64 = 1e6;
/// Minimum goodput under overload, as a part of the peak goodput.
const GOODPUT_MIN: f64 = 0.8;

/// A protocol: its requests, and how to count its answers.
#[derive(Clone, Copy)]
enum Wire {
    Resp,
    Http,
    Grpc,
}

struct LoadGenerator {
    wire: Wire,
    address: Option<SocketAddr>,
}

/// Counts answers in received bytes.
struct Counter {
    wire: Wire,
    /// The beginning of an incomplete frame.
    part: Vec<u8>,
}

impl Counter {
    fn count(&mut self, received: &[u8]) -> usize {
        let mark = match self.wire {
            Wire::Resp => b'*',
            Wire::Http => b'{',
            Wire::Grpc => {
                self.part.extend_from_slice(received);
                let (frames, length) = complete_frames(&self.part);
                let answers = frames.iter().filter(|frame| frame.kind == DATA).count();
                self.part.drain(..length);
                return answers;
            }
        };
        received.iter().filter(|byte| **byte == mark).count()
    }
}

impl LoadGenerator {
    fn all(running: &Running) -> [Self; 3] {
        let at = running.addresses;
        [(Wire::Resp, at.resp), (Wire::Http, at.http), (Wire::Grpc, at.grpc)]
            .map(|(wire, address)| Self { wire, address })
    }

    /// Returns the maximum memory growth. A server that buffered the requests that it cannot answer yet would need hundreds of
    /// megabytes. Over gRPC each of six clients may have a thousand calls in flight, of some kilobytes each, and the allocator
    /// does not return freed memory to the system.
    fn memory_bytes_max(&self) -> usize {
        match self.wire {
            Wire::Resp | Wire::Http => 64 << 20,
            Wire::Grpc => 256 << 20,
        }
    }

    fn connect(&self) -> (Peer, Counter) {
        let mut peer = Peer::new(self.address);
        if matches!(self.wire, Wire::Grpc) {
            // The window is large enough for all answers.
            let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]);
            assert!(peer.send([PREFACE, &SETTINGS, &window].concat()));
        }
        (peer, Counter { wire: self.wire, part: Vec::new() })
    }

    /// Returns pipeline `number` of [`PIPELINE`] requests. gRPC calls need new streams in each pipeline.
    fn requests(&self, number: usize) -> Vec<u8> {
        match self.wire {
            Wire::Resp => array(&[b"CL.THROTTLE", b"user", b"15", b"30", b"60"]).repeat(PIPELINE),
            Wire::Http => {
                let body = r#"{"rule":"30/min burst 16","key":"user"}"#;
                let head =
                    "POST /v1/peek HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
                let ask = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                ask.into_bytes().repeat(PIPELINE)
            }
            Wire::Grpc => calls(number * PIPELINE, PIPELINE),
        }
    }

    /// Returns the answers per second to clients that send the next pipeline after each answered one.
    fn peak_goodput(&self, peers: usize) -> f64 {
        rate(peers, Duration::ZERO, PEAK_TIME, |until| {
            let (mut peer, mut counter) = self.connect();
            let mut answered = 0;
            for number in 0.. {
                if Instant::now() >= until {
                    break;
                }
                answered += self.pipeline(&mut peer, &mut counter, number);
            }
            answered
        })
    }

    /// Sends a pipeline and reads the answers.
    fn pipeline(&self, peer: &mut Peer, counter: &mut Counter, number: usize) -> usize {
        self.try_pipeline(peer, counter, number).expect("the client is answered")
    }

    /// Sends a pipeline and reads the answers. Returns `None` if they do not arrive before the read timeout.
    fn try_pipeline(&self, peer: &mut Peer, counter: &mut Counter, number: usize) -> Option<usize> {
        assert!(peer.send(self.requests(number)), "the server accepts the requests");
        let (mut answered, mut received) = (0, vec![0; 65_536]);
        while answered < PIPELINE {
            let read = peer.0.read(&mut received).ok()?;
            assert!(read > 0, "the server closed the connection");
            answered += counter.count(&received[..read]);
        }
        assert_eq!(answered, PIPELINE, "no request is answered twice");
        Some(answered)
    }

    /// Sends a pipeline; without an answer within [`RETRY_AFTER`], disconnects and retries immediately, up to three times. Returns the
    /// number of attempts.
    fn attempts(&self) -> usize {
        let is_answered = || {
            let (mut peer, mut counter) = self.connect();
            peer.0.set_read_timeout(Some(RETRY_AFTER)).unwrap();
            self.try_pipeline(&mut peer, &mut counter, 0).is_some()
        };
        1 + (0..3).take_while(|_| !is_answered()).count()
    }

    /// Sends pipelines with retries, at four fifths of the possible rate. Returns the time at which ten in a row were answered
    /// at the first attempt after the load had ended.
    fn recovered_at(&self, is_gone: &AtomicBool) -> Instant {
        let (since, mut at_once) = (Instant::now(), 0);
        while at_once < 10 {
            assert!(since.elapsed() < PATIENCE, "the server never recovers");
            let began = Instant::now();
            let is_at_once = self.attempts() == 1 && is_gone.load(Ordering::Relaxed);
            at_once = if is_at_once { at_once + 1 } else { 0 };
            std::thread::park_timeout(began.elapsed() / 4);
        }
        Instant::now()
    }

    /// Returns the answers per second to clients that send as fast as they can without waiting for answers.
    fn overloaded_goodput(&self, peers: usize) -> f64 {
        rate(peers, RAMP_UP, OVERLOAD_TIME, |until| {
            let (Peer(mut peer), mut counter) = self.connect();
            let (writer, answered) = (peer.try_clone().unwrap(), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| self.send_without_end(&writer, until, &answered));
                let (mut received, mut before) = (vec![0; 65_536], None);
                while Instant::now() < until {
                    let read = peer.read(&mut received).unwrap_or(0);
                    assert!(
                        read > 0 || Instant::now() >= until,
                        "the server closed the connection"
                    );
                    let so_far =
                        answered.fetch_add(counter.count(&received[..read]), Ordering::Relaxed);
                    if Instant::now() + OVERLOAD_TIME > until {
                        before.get_or_insert(so_far);
                    }
                }
                // Ends the sending thread, whose remaining requests do not matter.
                let _ = peer.shutdown(Shutdown::Both);
                answered.load(Ordering::Relaxed) - before.unwrap_or_default()
            })
        })
    }

    /// Asserts that overload slows a client with one request at a time by at most [`TIMES_MAX`].
    fn assert_hardly_slows(&self, wire: net::Wire, running: &Running) {
        assert_hardly_slower((wire, running), TIMES_MAX, "overload", || {
            self.overloaded_goodput(CLIENTS);
        });
    }

    fn send_without_end(&self, mut peer: &TcpStream, until: Instant, answered: &AtomicUsize) {
        for number in 0.. {
            let is_full = || match self.wire {
                // HTTP/2 limits the number of calls in flight.
                Wire::Grpc => {
                    (number + 1) * PIPELINE > answered.load(Ordering::Relaxed) + STREAMS_MAX
                }
                Wire::Resp | Wire::Http => false,
            };
            while is_full() && Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let is_over = Instant::now() >= until;
            if is_over || peer.write_all(&self.requests(number)).is_err() {
                // The reading thread may wait for answers to requests that were not sent.
                let _ = peer.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Returns what all clients together do per second. Each does its work for `first`, which does not count, and then for
/// `time`.
fn rate(
    peers: usize,
    first: Duration,
    time: Duration,
    work: impl Fn(Instant) -> usize + Sync,
) -> f64 {
    let since = Instant::now() + first;
    let total: usize = std::thread::scope(|scope| {
        let peers: Vec<_> = (0..peers).map(|_| scope.spawn(|| work(since + time))).collect();
        peers.into_iter().map(|peer| peer.join().expect("the client is answered")).sum()
    });
    #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
    let rate = total as f64 / since.elapsed().as_secs_f64();
    rate
}

// T47
#[test]
fn overload_lowers_goodput_by_less_than_a_fifth() {
    let running = start_exclusive(|_| ());
    let before = rss_bytes();
    for load in LoadGenerator::all(&running) {
        // Other processes share the machine, so each overload is compared with the peak measured just before it.
        assert_medians("goodput", || {
            let (peak, overloaded) = (load.peak_goodput(2), load.overloaded_goodput(CLIENTS));
            [(
                Duration::from_secs_f64(ANSWERS / overloaded),
                Duration::from_secs_f64(ANSWERS / (GOODPUT_MIN * peak)),
            )]
        });
        // Requests that wait stay in the clients' sockets.
        assert_grew_less(before, load.memory_bytes_max());
        let open = || running.server.status.connections.sum();
        eventually("the server does not process requests of closed connections", secs(5), || {
            open() == 0
        });
        assert_serves(&running);
    }
    running.stop().unwrap();
}

// T47
#[test]
fn within_5_s_after_an_overload_retries_are_answered_at_once() {
    let running = start_exclusive(|_| ());
    for load in LoadGenerator::all(&running) {
        let is_gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..4).map(|_| scope.spawn(|| load.recovered_at(&is_gone))).collect();
            load.overloaded_goodput(CLIENTS);
            is_gone.store(true, Ordering::Relaxed);
            let since = Instant::now();
            for client in clients {
                let took = client.join().expect("the server recovers").duration_since(since);
                assert!(took < secs(5), "it took {took:?}");
            }
        });
    }
    running.stop().unwrap();
}

/// Maximum slowdown of a client with one request at a time during an overload: it waits until each of the three other
/// clients on its worker has had a turn.
const TIMES_MAX: u32 = 4;

// T47
#[test]
fn a_client_with_one_request_waits_for_turns_and_not_for_whole_pipelines() {
    let running = start_exclusive(|_| ());
    for load in LoadGenerator::all(&running) {
        match load.wire {
            Wire::Resp => load.assert_hardly_slows(net::Wire::Resp, &running),
            Wire::Http => load.assert_hardly_slows(net::Wire::Http, &running),
            // The server answers calls in the order of their arrival, so a call waits for all calls in flight, but for no more.
            Wire::Grpc => assert_medians("gRPC", || {
                let mut rate = 0.0;
                let took = latencies_during((net::Wire::Grpc, &running), || {
                    rate = load.overloaded_goodput(CLIENTS);
                });
                #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
                let under_way = (CLIENTS * STREAMS_MAX) as f64;
                [(p99(&took), Duration::from_secs_f64(3.0 * under_way / rate))]
            }),
        }
    }
    running.stop().unwrap();
}
