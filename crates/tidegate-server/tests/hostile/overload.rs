//! T47: more requests than the server can answer.
//!
//! With limits in memory nothing is rejected, because a rejection would take as long as a decision. The tests show instead that
//! three times the capacity lowers goodput by less than a fifth, that waiting requests stay in the clients' sockets and cost the
//! server nothing, and that the effects end with the overload. `waiting.rs` tests requests that wait and are rejected.

use crate::frames::{DATA, PREFACE, SETTINGS, WINDOW_UPDATE, calls, frame, whole};
use crate::harness::{
    PATIENCE, Peer, array, assert_grew_less, eventually, rss_bytes, secs, serves, start_alone,
};
use crate::pace::{asked_beside, assert_hardly_slower, assert_mostly, p99};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate_server::net::{self, Running};

const PIPELINE: usize = 64;
/// Of whom each asks as much as it can: three times as many as can be answered.
const CROWD: usize = 6;
/// What the server tells who asks over HTTP/2.
const STREAMS_MAX: usize = 1_024;
const ALONE: Duration = Duration::from_millis(200);
/// Until as much is asked as can be: what is answered meanwhile does not count.
const FILLING: Duration = Duration::from_millis(200);
const CROWDED: Duration = Duration::from_millis(400);
/// So long waits who asks again.
const SOON: Duration = Duration::from_millis(250);
/// How long so many answers take is compared.
const MANY: f64 = 1e6;
/// A server that breaks down under load does worse than this.
const GOODPUT_MIN: f64 = 0.8;

/// How a wire is asked, and how its answers are counted.
#[derive(Clone, Copy)]
enum Wire {
    Resp,
    Http,
    Grpc,
}

struct Asker {
    wire: Wire,
    address: Option<SocketAddr>,
}

/// Counts answers in what comes.
struct Counter {
    wire: Wire,
    /// What was heard of a frame that is not whole.
    part: Vec<u8>,
}

impl Counter {
    fn count(&mut self, heard: &[u8]) -> usize {
        let mark = match self.wire {
            Wire::Resp => b'*',
            Wire::Http => b'{',
            Wire::Grpc => {
                self.part.extend_from_slice(heard);
                let (frames, length) = whole(&self.part);
                let answers = frames.iter().filter(|frame| frame.kind == DATA).count();
                self.part.drain(..length);
                return answers;
            }
        };
        heard.iter().filter(|byte| **byte == mark).count()
    }
}

impl Asker {
    fn all(running: &Running) -> [Self; 3] {
        let at = running.addresses;
        [(Wire::Resp, at.resp), (Wire::Http, at.http), (Wire::Grpc, at.grpc)]
            .map(|(wire, address)| Self { wire, address })
    }

    /// A server that kept what it cannot answer yet would keep hundreds of megabytes. Over gRPC a thousand calls of each of
    /// six peers may be under way in each round, of some kilobytes each, and an allocator keeps what it had for others.
    fn memory_bytes_max(&self) -> usize {
        match self.wire {
            Wire::Resp | Wire::Http => 64 << 20,
            Wire::Grpc => 256 << 20,
        }
    }

    fn connect(&self) -> (Peer, Counter) {
        let mut peer = Peer::new(self.address);
        if matches!(self.wire, Wire::Grpc) {
            // As much as is ever answered may come without our asking for more.
            let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]);
            assert!(peer.say([PREFACE, &SETTINGS, &window].concat()));
        }
        (peer, Counter { wire: self.wire, part: Vec::new() })
    }

    /// So many questions; a stream is used once.
    fn questions(&self, number: usize) -> Vec<u8> {
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

    /// How many are answered a second to peers of which each asks again when it has been answered.
    fn peak(&self, peers: usize) -> f64 {
        rate(peers, Duration::ZERO, ALONE, |until| {
            let (mut peer, mut counter) = self.connect();
            let mut answered = 0;
            for number in 0.. {
                if Instant::now() >= until {
                    break;
                }
                answered += self.ask(&mut peer, &mut counter, number);
            }
            answered
        })
    }

    /// Asks for some and hears the answers.
    fn ask(&self, peer: &mut Peer, counter: &mut Counter, number: usize) -> usize {
        self.try_ask(peer, counter, number).expect("it is answered")
    }

    /// The same; nothing if the answers do not come while the peer waits.
    fn try_ask(&self, peer: &mut Peer, counter: &mut Counter, number: usize) -> Option<usize> {
        assert!(peer.say(self.questions(number)), "it is taken");
        let (mut answered, mut heard) = (0, vec![0; 65_536]);
        while answered < PIPELINE {
            let read = peer.0.read(&mut heard).ok()?;
            assert!(read > 0, "it was cut off");
            answered += counter.count(&heard[..read]);
        }
        assert_eq!(answered, PIPELINE, "nobody is answered twice");
        Some(answered)
    }

    /// Asks, and where there is no answer soon, leaves and asks again at once, three times. Tells how often it asked.
    fn ask_again_and_again(&self) -> usize {
        let is_answered = || {
            let (mut peer, mut counter) = self.connect();
            peer.0.set_read_timeout(Some(SOON)).unwrap();
            self.try_ask(&mut peer, &mut counter, 0).is_some()
        };
        1 + (0..3).take_while(|_| !is_answered()).count()
    }

    /// Asks like this at four fifths of what it could. Tells when all has been answered at once, after the load is gone.
    fn recovers(&self, is_gone: &AtomicBool) -> Instant {
        let (since, mut at_once) = (Instant::now(), 0);
        while at_once < 10 {
            assert!(since.elapsed() < PATIENCE, "it never recovers");
            let began = Instant::now();
            let is_at_once = self.ask_again_and_again() == 1 && is_gone.load(Ordering::Relaxed);
            at_once = if is_at_once { at_once + 1 } else { 0 };
            std::thread::park_timeout(began.elapsed() / 4);
        }
        Instant::now()
    }

    /// The same for peers that ask as fast as they can, whatever is answered.
    fn crowded(&self, peers: usize) -> f64 {
        rate(peers, FILLING, CROWDED, |until| {
            let (Peer(mut peer), mut counter) = self.connect();
            let (asking, answered) = (peer.try_clone().unwrap(), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| self.ask_without_end(&asking, until, &answered));
                let (mut heard, mut before) = (vec![0; 65_536], None);
                while Instant::now() < until {
                    let read = peer.read(&mut heard).unwrap_or(0);
                    assert!(read > 0 || Instant::now() >= until, "it was cut off");
                    let so_far =
                        answered.fetch_add(counter.count(&heard[..read]), Ordering::Relaxed);
                    if Instant::now() + CROWDED > until {
                        before.get_or_insert(so_far);
                    }
                }
                // What it still has to say, it need not.
                let _ = peer.shutdown(Shutdown::Both);
                answered.load(Ordering::Relaxed) - before.unwrap_or_default()
            })
        })
    }

    /// Who asks one thing at a time is answered soon beside a crowd.
    fn hardly_slows(&self, wire: net::Wire, running: &Running) {
        assert_hardly_slower((wire, running), TIMES_MAX, "a crowd", || {
            self.crowded(CROWD);
        });
    }

    fn ask_without_end(&self, mut peer: &TcpStream, until: Instant, answered: &AtomicUsize) {
        for number in 0.. {
            let is_full = || match self.wire {
                // HTTP/2 lets nobody ask for more at once.
                Wire::Grpc => {
                    (number + 1) * PIPELINE > answered.load(Ordering::Relaxed) + STREAMS_MAX
                }
                Wire::Resp | Wire::Http => false,
            };
            while is_full() && Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let is_over = Instant::now() >= until;
            if is_over || peer.write_all(&self.questions(number)).is_err() {
                // Who listens may wait for an answer to what is not asked any more.
                let _ = peer.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// What so many do together in a second, told by what each does in this time after the first.
fn rate(
    peers: usize,
    first: Duration,
    time: Duration,
    work: impl Fn(Instant) -> usize + Sync,
) -> f64 {
    let since = Instant::now() + first;
    let total: usize = std::thread::scope(|scope| {
        let peers: Vec<_> = (0..peers).map(|_| scope.spawn(|| work(since + time))).collect();
        peers.into_iter().map(|peer| peer.join().expect("it is answered")).sum()
    });
    #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
    let rate = total as f64 / since.elapsed().as_secs_f64();
    rate
}

// T47
#[test]
fn overload_lowers_goodput_by_less_than_a_fifth() {
    let running = start_alone(|_| ());
    let before = rss_bytes();
    for asker in Asker::all(&running) {
        // Others share the machine and may take it for a while, so each crowd is held against two peers just before it.
        assert_mostly("goodput", || {
            let (peak, crowded) = (asker.peak(2), asker.crowded(CROWD));
            [(
                Duration::from_secs_f64(MANY / crowded),
                Duration::from_secs_f64(MANY / (GOODPUT_MIN * peak)),
            )]
        });
        // What nobody has read yet lies in the sockets.
        assert_grew_less(before, asker.memory_bytes_max());
        let open = || running.server.status.connections.sum();
        eventually("what nobody waits for is not worked off", secs(5), || open() == 0);
        serves(&running);
    }
    running.stop().unwrap();
}

// T47
#[test]
fn within_5_s_after_an_overload_retries_are_answered_at_once() {
    let running = start_alone(|_| ());
    for asker in Asker::all(&running) {
        let is_gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let again: Vec<_> = (0..4).map(|_| scope.spawn(|| asker.recovers(&is_gone))).collect();
            asker.crowded(CROWD);
            is_gone.store(true, Ordering::Relaxed);
            let since = Instant::now();
            for again in again {
                let took = again.join().expect("it recovers").duration_since(since);
                assert!(took < secs(5), "it took {took:?}");
            }
        });
    }
    running.stop().unwrap();
}

/// So many times as long as alone may one wait beside who asks for more than can be answered: until each of three has had its
/// turn on the same worker.
const TIMES_MAX: u32 = 4;

// T47
#[test]
fn a_client_with_one_request_waits_for_turns_and_not_for_whole_pipelines() {
    let running = start_alone(|_| ());
    for asker in Asker::all(&running) {
        match asker.wire {
            Wire::Resp => asker.hardly_slows(net::Wire::Resp, &running),
            Wire::Http => asker.hardly_slows(net::Wire::Http, &running),
            // Calls are answered in the order they come. Who has a thousand under way is waited for, but for no more than that.
            Wire::Grpc => assert_mostly("gRPC", || {
                let mut rate = 0.0;
                let took = asked_beside((net::Wire::Grpc, &running), || {
                    rate = asker.crowded(CROWD);
                });
                #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
                let under_way = (CROWD * STREAMS_MAX) as f64;
                [(p99(&took), Duration::from_secs_f64(3.0 * under_way / rate))]
            }),
        }
    }
    running.stop().unwrap();
}
