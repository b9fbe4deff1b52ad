//! A harmless client: it sends one request at a time and reads each answer.

use crate::frames::{
    DATA, END_STREAM, Frame, HEADERS, NO_HEADER_TABLE, OK, PREFACE, RESOURCE_EXHAUSTED,
    WINDOW_UPDATE, call, complete_frames, frame, grpc_status, stream,
};
use crate::harness::{Peer, array};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::net::{Running, Wire};

/// A client that sends one request at a time.
pub(crate) struct CheckClient {
    wire: Wire,
    peer: Peer,
    checks: usize,
}

impl CheckClient {
    pub(crate) fn new(wire: Wire, running: &Running) -> Self {
        let at = running.addresses;
        let mut peer = match wire {
            Wire::Resp => Peer::new(at.resp),
            Wire::Grpc => Peer::new(at.grpc),
            Wire::Http | Wire::Admin => Peer::new(at.http),
        };
        if wire == Wire::Grpc {
            // The window is large enough for all answers.
            let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]);
            assert!(peer.send([PREFACE, &NO_HEADER_TABLE, &window].concat()));
        }
        Self { wire, peer, checks: 0 }
    }

    /// Sends a request. Returns `true` if the answer is a decision, and `false` if it is the protocol's overload error.
    pub(crate) fn check(&mut self) -> bool {
        self.checks += 1;
        match self.wire {
            Wire::Resp => {
                self.peer.send(array(&[b"TIDE.CHECK", b"1000000/s", b"key"]));
                let answer = self.peer.line();
                if answer == "*5" {
                    (0..5).for_each(|_| assert!(self.peer.line().starts_with(':')));
                    return true;
                }
                assert!(answer.starts_with("-BUSY "), "{answer}");
                false
            }
            Wire::Http | Wire::Admin => self.check_http(),
            Wire::Grpc => self.check_grpc(),
        }
    }

    fn check_http(&mut self) -> bool {
        let body = r#"{"rule":"1000000/s","key":"key"}"#;
        let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        self.peer.send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let status = self.peer.line();
        let mut fields: Vec<String> = Vec::new();
        while fields.last().is_none_or(|field| !field.is_empty()) {
            fields.push(self.peer.line());
        }
        let length = fields.iter().find_map(|field| field.strip_prefix("content-length: "));
        let mut body = vec![0; length.expect("it has one").parse().unwrap()];
        self.peer.0.read_exact(&mut body).unwrap();
        let is_refused = status.starts_with("HTTP/1.1 503 ");
        assert!(is_refused || status.starts_with("HTTP/1.1 200 "), "{status}");
        assert_eq!(fields.iter().any(|field| field == "retry-after: 1"), is_refused, "{fields:?}");
        !is_refused
    }

    fn check_grpc(&mut self) -> bool {
        let stream = stream(self.checks - 1);
        self.peer.send(call(stream));
        let (mut received, mut piece) = (Vec::new(), [0; 1_024]);
        loop {
            let read = self.peer.0.read(&mut piece).expect("it is answered");
            assert!(read > 0, "the server closed the connection");
            received.extend_from_slice(&piece[..read]);
            let frames: Vec<Frame<'_>> = complete_frames(&received)
                .0
                .into_iter()
                .filter(|frame| frame.stream == stream)
                .collect();
            if frames.iter().any(|frame| frame.flags & END_STREAM != 0) {
                return is_decided(&frames);
            }
        }
    }
}

/// Returns whether the answer is a decision. A decision is headers, a message, and trailers with the status OK; a refusal
/// is headers only, with the status `RESOURCE_EXHAUSTED`.
fn is_decided(answer: &[Frame<'_>]) -> bool {
    let last = answer.last().expect("the answer has frames");
    let (kinds, status): (Vec<u8>, _) =
        (answer.iter().map(|frame| frame.kind).collect(), grpc_status(last.payload));
    match kinds[..] {
        [HEADERS, DATA, HEADERS] => assert_eq!(status, Some(OK), "{answer:?}"),
        [HEADERS] => assert_eq!(status, Some(RESOURCE_EXHAUSTED), "{answer:?}"),
        _ => panic!("neither a decision nor a refusal: {answer:?}"),
    }
    kinds.len() > 1
}

/// Sends one request after the other, with a millisecond in between, while `goes_on(requests so far)` holds. Asserts that
/// each is decided, and returns the latencies, sorted.
pub(crate) fn latencies_while(
    wire: Wire,
    running: &Running,
    goes_on: impl Fn(usize) -> bool,
) -> Vec<Duration> {
    let (mut client, mut took) = (CheckClient::new(wire, running), Vec::new());
    while goes_on(took.len()) {
        let since = Instant::now();
        assert!(client.check(), "it is decided");
        took.push(since.elapsed());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    took.sort_unstable();
    took
}
