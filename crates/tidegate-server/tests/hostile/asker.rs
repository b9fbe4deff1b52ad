//! A harmless client.

use crate::frames::{
    DATA, END_STREAM, Frame, HEADERS, NO_TABLE, OK, PREFACE, RESOURCE_EXHAUSTED, WINDOW_UPDATE,
    call, frame, grpc_status, stream, whole,
};
use crate::harness::{Peer, array};
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_server::net::{Running, Wire};

/// Somebody who asks one thing at a time.
pub(crate) struct Asker {
    wire: Wire,
    peer: Peer,
    asked: usize,
}

impl Asker {
    pub(crate) fn new(wire: Wire, running: &Running) -> Self {
        let at = running.addresses;
        let mut peer = match wire {
            Wire::Resp => Peer::new(at.resp),
            Wire::Grpc => Peer::new(at.grpc),
            Wire::Http | Wire::Admin => Peer::new(at.http),
        };
        if wire == Wire::Grpc {
            // As much as is ever answered may come without our asking for more.
            let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]);
            assert!(peer.say([PREFACE, &NO_TABLE, &window].concat()));
        }
        Self { wire, peer, asked: 0 }
    }

    /// Whether it was decided; if not, it was refused as the wire has it.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked += 1;
        match self.wire {
            Wire::Resp => {
                self.peer.say(array(&[b"TIDE.CHECK", b"1000000/s", b"key"]));
                let answer = self.peer.line();
                if answer == "*5" {
                    (0..5).for_each(|_| assert!(self.peer.line().starts_with(':')));
                    return true;
                }
                assert!(answer.starts_with("-BUSY "), "{answer}");
                false
            }
            Wire::Http | Wire::Admin => self.ask_http(),
            Wire::Grpc => self.ask_grpc(),
        }
    }

    fn ask_http(&mut self) -> bool {
        let body = r#"{"rule":"1000000/s","key":"key"}"#;
        let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        self.peer.say(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
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

    fn ask_grpc(&mut self) -> bool {
        let stream = stream(self.asked - 1);
        self.peer.say(call(stream));
        let (mut heard, mut piece) = (Vec::new(), [0; 1_024]);
        loop {
            let read = self.peer.0.read(&mut piece).expect("it is answered");
            assert!(read > 0, "it was cut off");
            heard.extend_from_slice(&piece[..read]);
            let frames: Vec<Frame<'_>> =
                whole(&heard).0.into_iter().filter(|frame| frame.stream == stream).collect();
            if frames.iter().any(|frame| frame.flags & END_STREAM != 0) {
                return is_decided(&frames);
            }
        }
    }
}

/// A decision is headers, a message, and headers that say that all is well; a refusal is headers only, and they say
/// that there is no room for more.
fn is_decided(answer: &[Frame<'_>]) -> bool {
    let last = answer.last().expect("it has an end");
    let (kinds, status): (Vec<u8>, _) =
        (answer.iter().map(|frame| frame.kind).collect(), grpc_status(last.payload));
    match kinds[..] {
        [HEADERS, DATA, HEADERS] => assert_eq!(status, Some(OK), "{answer:?}"),
        [HEADERS] => assert_eq!(status, Some(RESOURCE_EXHAUSTED), "{answer:?}"),
        _ => panic!("neither a decision nor a refusal: {answer:?}"),
    }
    kinds.len() > 1
}

/// Asks one thing after the other for as long as it is to, each a millisecond after the last. All is decided; tells how long
/// that took, sorted.
pub(crate) fn asked_while(
    wire: Wire,
    running: &Running,
    goes_on: impl Fn(usize) -> bool,
) -> Vec<Duration> {
    let (mut asker, mut took) = (Asker::new(wire, running), Vec::new());
    while goes_on(took.len()) {
        let since = Instant::now();
        assert!(asker.ask(), "it is decided");
        took.push(since.elapsed());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    took.sort_unstable();
    took
}
