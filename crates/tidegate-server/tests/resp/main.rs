//! RESP sessions, byte for byte, without sockets and with a manual clock.

mod cell;
mod clients;
mod errors;

use proptest::prelude::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::snapshot::Snapshot;
use tidegate::{Clock as _, ManualClock, Span};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, LimitConfig, Mode, Token};
use tidegate_server::protocol::resp::Session;
use tidegate_server::server::Server;
use tidegate_testbed::OWN_TABLE;

struct Peer {
    clock: ManualClock,
    session: Session,
}

impl Peer {
    fn new() -> Self {
        Self::of(Config::default())
    }

    fn of(config: Config) -> Self {
        let clock = ManualClock::new();
        let server =
            Server::new(config, None, ServerClock::Manual(clock.clone()), Snapshot::default());
        Self { clock, session: Session::new(server) }
    }

    /// Returns another session of the same server.
    fn another(&self, server: &Arc<Server>) -> Self {
        Self { clock: self.clock.clone(), session: Session::new(Arc::clone(server)) }
    }

    /// Returns the number of bytes that the session takes, and its answer.
    fn bytes(&mut self, bytes: &[u8]) -> (usize, Vec<u8>) {
        let done = ready(self.session.answer(bytes));
        let reply = self.session.output().to_vec();
        self.session.clear_output();
        (done, reply)
    }

    fn raw(&mut self, bytes: &[u8]) -> (usize, String) {
        let (done, reply) = self.bytes(bytes);
        let reply = String::from_utf8_lossy(&reply).replace("\r\n", " ");
        (done, reply.trim_end().to_owned())
    }

    /// Sends the line's words as an array and returns the answer, with spaces for line breaks.
    fn send(&mut self, line: &str) -> String {
        let bytes = array(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let (done, reply) = self.raw(&bytes);
        assert_eq!(done, bytes.len(), "{line} is a whole command");
        reply
    }

    fn words(&mut self, words: &[&str]) -> String {
        self.raw(&array(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())).1
    }
}

fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns the result of a future that is ready at its first poll, because the store is in memory.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is not ready"),
    }
}

fn with_token() -> Peer {
    let mut config = Config::default();
    config.server.tokens = vec![Token::new("hush")];
    Peer::of(config)
}

fn named(name: &str, rule: &str, mode: Mode) -> LimitConfig {
    LimitConfig { mode, ..LimitConfig::new(name, rule.parse().expect("a rule")) }
}

#[test]
fn cl_throttle_answers_as_redis_cell_does() {
    let mut peer = Peer::new();
    assert_eq!(peer.send("CL.THROTTLE user123 15 30 60"), "*5 :0 :16 :15 :-1 :2");
    assert_eq!(peer.send("cl.throttle k 0 1 2 1"), "*5 :0 :1 :0 :-1 :2");
    assert_eq!(peer.send("CL.THROTTLE k 0 1 2 1"), "*5 :1 :1 :0 :2 :2");
    peer.clock.advance(Span::from_secs(2));
    assert_eq!(peer.send("CL.THROTTLE k +0 +1 2 1"), "*5 :0 :1 :0 :-1 :2");
}

/// The table of redis-cell's own tests, over the wire; `tidegate/tests/throttles.rs` has it in process.
#[test]
fn cl_throttle_follows_redis_cells_own_table() {
    let mut peer = Peer::new();
    let start = peer.clock.now();
    for (ms, quantity, five) in OWN_TABLE {
        peer.clock.set(start + Span::from_millis(ms));
        let five = five.map(|number| format!(":{number}")).join(" ");
        let reply = peer.send(&format!("CL.THROTTLE k 4 1 1 {quantity}"));
        assert_eq!(reply, format!("*5 {five}"), "{quantity} at {ms} ms");
    }
}

#[test]
fn cl_throttle_has_redis_cells_error_messages() {
    let mut peer = Peer::new();
    let usage = "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> \
                 <period> [<quantity>]";
    for line in ["CL.THROTTLE", "CL.THROTTLE k", "CL.THROTTLE k 1 1", "CL.THROTTLE k 1 1 1 1 1"] {
        assert_eq!(peer.send(line), usage);
    }
    let long = "9".repeat(300);
    for (line, word) in [
        ("CL.THROTTLE k x 1 1", "x"),
        ("CL.THROTTLE k 1 1.5 1", "1.5"),
        ("CL.THROTTLE k 1 1 9223372036854775808", "9223372036854775808"),
        ("CL.THROTTLE k 1 1 1 ", ""),
        ("CL.THROTTLE k a b c d", "a"),
        ("CL.THROTTLE k 1 0 c d", "c"),
        ("CL.THROTTLE k 1 0 1 d", "d"),
        (&format!("CL.THROTTLE k {long} 1 1"), &long),
    ] {
        let reply = peer.send(line);
        assert_eq!(
            reply,
            format!("-Cell error: Store error: Couldn't parse as integer: {word}").trim_end()
        );
    }
    let zero = "-Cell error: Store error: Zero rates are not supported";
    assert_eq!(peer.send("CL.THROTTLE k 1 0 1"), zero);
    assert_eq!(peer.send("CL.THROTTLE k 1 1 0"), zero);
}

#[test]
fn a_key_is_any_bytes() {
    let mut peer = Peer::new();
    let keys: [&[u8]; 4] = [b"", b"\xff\xfe", b"a\r\nb", &vec![b'x'; 100_000]];
    for key in keys {
        let bytes = array(&[b"CL.THROTTLE", key, b"0", b"1", b"1"]);
        assert_eq!(peer.raw(&bytes).1, "*5 :0 :1 :0 :-1 :1");
        assert_eq!(peer.raw(&bytes).1, "*5 :1 :1 :0 :1 :1");
    }
    let number = array(&[b"CL.THROTTLE", b"k", b"\xff", b"1", b"1"]);
    assert_eq!(
        peer.raw(&number).1,
        "-Cell error: Store error: Couldn't parse as integer: \u{fffd}"
    );
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let mut peer = Peer::new();
    let lines = [
        "CL.THROTTLE a 1 1 1",
        "PING",
        "CL.THROTTLE a 1 1 1",
        "CL.THROTTLE a x 1 1",
        "CL.THROTTLE a 1 1 1",
    ];
    let bytes: Vec<u8> = lines
        .iter()
        .flat_map(|line| array(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
        .collect();
    let reply = "*5 :0 :2 :1 :-1 :1 +PONG *5 :0 :2 :0 :-1 :2 \
                -Cell error: Store error: Couldn't parse as integer: x *5 :1 :2 :0 :1 :2";
    assert_eq!(peer.raw(&bytes), (bytes.len(), reply.to_owned()));
}

#[test]
fn a_long_pipeline_is_answered_in_parts() {
    let mut peer = Peer::new();
    let one = array(&[b"CL.THROTTLE", b"k", b"1000000000", b"1000000000", b"1"]);
    let mut rest: Vec<u8> = one.repeat(100_000);
    let mut answers = 0;
    while !rest.is_empty() {
        let done = ready(peer.session.answer(&rest));
        assert!(done > 0, "the session takes at least one command");
        assert!(
            peer.session.output().len() < 128 * 1024,
            "the session stops until its output is sent"
        );
        answers += peer.session.output().split(|byte| *byte == b'*').count() - 1;
        peer.session.clear_output();
        rest.drain(..done);
    }
    assert_eq!(answers, 100_000);
}

#[test]
fn an_incomplete_command_gets_no_answer_until_it_is_complete() {
    let mut peer = Peer::new();
    let bytes = array(&[b"CL.THROTTLE", b"k", b"1", b"1", b"1"]);
    for cut in 0..bytes.len() {
        assert_eq!(peer.raw(&bytes[..cut]), (0, String::new()));
    }
    assert_eq!(peer.raw(&bytes).0, bytes.len());
}

#[test]
fn tide_check_takes_rule_text_and_returns_milliseconds() {
    let mut peer = Peer::new();
    assert_eq!(peer.words(&["TIDE.CHECK", "2/s burst 3", "alice"]), "*5 :1 :3 :2 :0 :500");
    assert_eq!(
        peer.words(&["TIDE.CHECK", "2/1s  burst 3", "alice", "COST", "2"]),
        "*5 :1 :3 :0 :0 :1500"
    );
    assert_eq!(peer.words(&["TIDE.CHECK", "2/s burst 3", "alice"]), "*5 :0 :3 :0 :500 :1500");
    assert_eq!(peer.words(&["TIDE.PEEK", "2/s burst 3", "alice"]), "*5 :0 :3 :0 :500 :1500");
    assert_eq!(
        peer.words(&["TIDE.CHECK", "2/s burst 3", "alice", "cost", "4"]),
        "*5 :0 :3 :0 :-1 :1500"
    );
    assert_eq!(peer.words(&["TIDE.REFUND", "2/s burst 3", "alice"]), "+OK");
    assert_eq!(
        peer.words(&["TIDE.PEEK", "2/s burst 3", "alice", "COST", "0"]),
        "*5 :1 :3 :1 :0 :1000"
    );
    assert_eq!(peer.words(&["TIDE.RESET", "2/s burst 3", "alice"]), "+OK");
    assert_eq!(peer.words(&["TIDE.PEEK", "2/s burst 3", "alice"]), "*5 :1 :3 :2 :0 :500");
}

#[test]
fn tide_check_with_an_id_is_charged_once() {
    let mut peer = Peer::new();
    assert_eq!(peer.send("TIDE.CHECK 10/s a COST 3 ID order-7"), "*5 :1 :10 :7 :0 :300");
    assert_eq!(peer.send("TIDE.CHECK 10/s a COST 7"), "*5 :1 :10 :0 :0 :1000");
    assert_eq!(peer.send("tide.check 10/s a id order-7 cost 3"), "*5 :1 :10 :7 :0 :300");
    assert_eq!(
        peer.send("TIDE.CHECK 10/s a ID order-7"),
        "*5 :0 :10 :0 :100 :1000",
        "another cost"
    );
    peer.clock.advance(Span::from_secs(10));
    assert_eq!(peer.send("TIDE.CHECK 10/s a COST 3 ID order-7"), "*5 :1 :10 :7 :0 :300");
    assert_eq!(peer.send("TIDE.PEEK 10/s a COST 0"), "*5 :1 :10 :7 :0 :300", "it was charged");
    let syntax = "expected COST and a whole number or ID and a text, each once, got";
    for (options, got) in
        [("ID 1 ID 2", "ID"), ("COST 1 COST 2", "COST"), ("ID", "ID"), ("IT 1", "IT")]
    {
        let reply = peer.send(&format!("TIDE.CHECK 10/s a {options}"));
        assert_eq!(reply, format!("-ERR syntax error: {syntax} '{got}'"));
    }
    let reply = peer.send("TIDE.PEEK 10/s a ID 1");
    assert_eq!(reply, "-ERR syntax error: expected COST and a whole number, got 'ID'");
    let longest = "x".repeat(256);
    assert_eq!(peer.send(&format!("TIDE.CHECK 10/s a ID {longest}")), "*5 :1 :10 :6 :0 :400");
    let reply = peer.send(&format!("TIDE.CHECK 10/s a ID {longest}x"));
    assert_eq!(reply, "-ERR an id has 1 to 256 bytes, this one has 257");
    assert_eq!(peer.send("TIDE.PEEK 10/s a COST 0"), "*5 :1 :10 :6 :0 :400", "nothing was charged");
}

#[test]
fn a_rule_that_makes_requests_wait_returns_the_wait() {
    let mut peer = Peer::new();
    assert_eq!(peer.words(&["TIDE.CHECK", "10/s queue", "a"]).split(' ').nth(1), Some(":1"));
    let second = peer.words(&["TIDE.CHECK", "10/s queue", "a"]);
    assert_eq!(second.split(' ').nth(4), Some(":100"), "{second}");
}

#[test]
fn named_limits_obey_their_mode() {
    let limits = vec![
        named("login", "1/min", Mode::Enforce),
        named("trial", "1/min", Mode::Shadow),
        named("gone", "1/min", Mode::Off),
    ];
    let mut peer = Peer::of(Config { limits, ..Config::default() });
    assert_eq!(peer.send("TIDE.CHECK login a"), "*5 :1 :1 :0 :0 :60000");
    assert_eq!(peer.send("TIDE.CHECK login a"), "*5 :0 :1 :0 :60000 :60000");
    assert_eq!(peer.send("TIDE.CHECK trial a"), "*5 :1 :1 :0 :0 :60000");
    assert_eq!(
        peer.send("TIDE.CHECK trial a"),
        "*5 :1 :1 :0 :0 :60000",
        "the request passes and is counted"
    );
    let unlimited = "*5 :1 :-1 :-1 :0 :0";
    assert_eq!(peer.send("TIDE.CHECK gone a"), unlimited);
    assert_eq!(
        peer.send("TIDE.CHECK logn a").split(": ").next(),
        Some("-ERR no limit is named `logn`, and it is not a rule"),
    );
    assert!(peer.send("TIDE.CHECK logn a").ends_with("did you mean the limit `login`?"));
}

#[test]
fn checkall_charges_all_limits_or_none() {
    let mut peer = Peer::new();
    let all = |peer: &mut Peer, cost: &str| {
        peer.words(&["TIDE.CHECKALL", "5/s", "a", cost, "9/s", "a", cost])
    };
    assert_eq!(
        all(&mut peer, "3"),
        "*2 *5 :1 :5 :2 :0 :600 *2 *5 :1 :5 :2 :0 :600 *5 :1 :9 :6 :0 :334"
    );
    assert_eq!(
        all(&mut peer, "4"),
        "*2 *5 :0 :5 :2 :400 :600 *2 *5 :0 :5 :2 :400 :600 *5 :1 :9 :6 :0 :334",
        "the second limit was not charged",
    );
    assert!(peer.send("TIDE.CHECKALL 5/s a").starts_with("-ERR wrong number of arguments"));
    assert!(peer.send("TIDE.CHECKALL 5/s a 1 9/s").starts_with("-ERR wrong number of arguments"));
    assert!(peer.send("TIDE.CHECKALL 5/s a -1").starts_with("-ERR syntax error"));
}

#[test]
fn a_permit_is_acquired_and_released() {
    let mut peer = Peer::new();
    let rule = "concurrency 1 lease 30s";
    let taken = peer.words(&["TIDE.ACQUIRE", rule, "pool"]);
    let words: Vec<&str> = taken.split(' ').collect();
    assert_eq!(words[..5], ["*5", ":1", ":1", ":0", ":30000"]);
    let lease = words[6].to_owned();
    assert_eq!(peer.words(&["TIDE.ACQUIRE", rule, "pool"]), "*5 :0 :1 :0 :30000 $-1");
    assert_eq!(peer.words(&["TIDE.RELEASE", &lease]), ":1");
    assert_eq!(peer.words(&["TIDE.RELEASE", &lease]), ":0", "a permit is released once");
    assert!(peer.words(&["TIDE.ACQUIRE", rule, "pool"]).starts_with("*5 :1"));
    peer.clock.advance(Span::from_secs(30));
    assert!(
        peer.words(&["TIDE.ACQUIRE", rule, "pool"]).starts_with("*5 :1"),
        "the lease has expired"
    );
    assert!(peer.words(&["TIDE.RELEASE", "nonsense"]).starts_with("-ERR not a lease"));
    assert!(peer.words(&["TIDE.CHECK", rule, "pool"]).contains("use TIDE.ACQUIRE"));
    assert!(peer.words(&["TIDE.ACQUIRE", "1/s", "pool"]).contains("use TIDE.CHECK"));
}

#[test]
fn a_client_without_a_token_gets_no_answers() {
    let mut peer = with_token();
    assert_eq!(peer.send("CL.THROTTLE k 1 1 1"), "-NOAUTH Authentication required.");
    assert_eq!(peer.send("PING"), "-NOAUTH Authentication required.");
    assert!(peer.send("AUTH wrong").starts_with("-WRONGPASS"));
    assert!(peer.send("HELLO 3").starts_with("-NOAUTH HELLO"));
    assert!(peer.send("HELLO 3 AUTH default wrong").starts_with("-WRONGPASS"));
    assert_eq!(peer.send("AUTH hush"), "+OK");
    assert_eq!(peer.send("CL.THROTTLE k 1 1 1"), "*5 :0 :2 :1 :-1 :1");
    assert_eq!(with_token().send("AUTH default hush"), "+OK");
    assert!(Peer::new().send("AUTH hush").starts_with("-ERR AUTH <password> called without"));
}

#[test]
fn a_transaction_compares_no_token_after_eight_wrong_ones() {
    let mut peer = with_token();
    assert_eq!(peer.send("AUTH hush"), "+OK");
    assert_eq!(peer.send("MULTI"), "+OK");
    for guess in 0..8 {
        assert_eq!(peer.send(&format!("AUTH guess{guess}")), "+QUEUED");
    }
    assert_eq!(peer.send("AUTH hush"), "+QUEUED");
    let replies = peer.send("EXEC");
    assert_eq!(replies.matches("-WRONGPASS").count(), 9, "{replies}");
    assert!(peer.session.is_over());
}

#[test]
fn an_error_repeats_only_the_beginning_of_a_number() {
    let mut peer = Peer::new();
    let reply = peer.words(&["CL.THROTTLE", "k", &"\u{1}".repeat(500_000), "1", "1"]);
    assert!(reply.starts_with("-Cell error: Store error: Couldn't parse as integer: "));
    assert!(reply.len() < 8_000, "{}", reply.len());
}

#[test]
fn a_long_pipeline_of_short_answers_is_answered_with_a_small_output_maximum() {
    let mut config = Config::default();
    config.server.caps.output_bytes_max = 65_536;
    let mut peer = Peer::of(config);
    let pipeline = array(&[b"COMMAND"]).repeat(300);
    let mut done = 0;
    while done < pipeline.len() {
        let (taken, reply) = peer.raw(&pipeline[done..]);
        assert!(taken > 0 && !reply.contains("too long"), "after {done} bytes");
        done += taken;
    }
    assert!(!peer.session.is_over());
}

#[test]
fn del_resets_throttled_keys() {
    let mut peer = Peer::new();
    peer.send("CL.THROTTLE k 0 1 60");
    assert_eq!(peer.send("DEL k other"), ":1");
    assert_eq!(peer.send("CL.THROTTLE k 0 1 60"), "*5 :0 :1 :0 :-1 :60");
}

#[test]
fn exec_runs_the_commands_of_a_transaction() {
    let mut peer = Peer::new();
    assert_eq!(peer.send("MULTI"), "+OK");
    assert_eq!(peer.send("CL.THROTTLE k 0 1 60"), "+QUEUED");
    assert_eq!(peer.send("PING"), "+QUEUED");
    assert_eq!(peer.send("EXEC"), "*2 *5 :0 :1 :0 :-1 :60 +PONG");
    assert!(peer.send("EXEC").starts_with("-ERR EXEC without MULTI"));
    peer.send("MULTI");
    assert!(peer.send("NONSENSE").starts_with("-ERR unknown command"));
    assert!(peer.send("EXEC").starts_with("-EXECABORT"));
    peer.send("MULTI");
    assert_eq!(peer.send("DISCARD"), "+OK");
    assert_eq!(peer.send("CL.THROTTLE other 0 1 60"), "*5 :0 :1 :0 :-1 :60");
}

#[test]
fn a_browsers_connection_is_closed_before_it_executes_a_command() {
    for first in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", "Host: localhost\r\n"] {
        let mut peer = Peer::new();
        let mut bytes = first.as_bytes().to_vec();
        bytes.extend_from_slice(b"\r\nCL.THROTTLE k 0 1 60\r\n");
        assert_eq!(peer.raw(&bytes).1, "", "the session sends no answer");
        assert!(peer.session.is_over());
    }
}

#[test]
fn other_redis_commands_are_unknown() {
    let mut peer = Peer::new();
    for command in ["GET a", "get a", "POST a", "SET a 1"] {
        let reply = peer.send(command);
        assert!(reply.starts_with("-ERR unknown command"), "{command}: {reply}");
    }
    assert_eq!(peer.send("PING"), "+PONG");
}

#[test]
fn a_protocol_error_closes_the_connection() {
    for (bytes, reply) in [
        (&b"*1\r\n*1\r\n"[..], "-ERR Protocol error: expected '$', got '*'"),
        (b"*1000000000\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$2147483647\r\n", "-ERR Protocol error: invalid bulk length"),
    ] {
        let mut peer = Peer::new();
        assert_eq!(peer.raw(bytes).1, reply);
        assert!(peer.session.is_over());
    }
    let mut anonymous = with_token();
    assert_eq!(
        anonymous.raw(b"*11\r\n").1,
        "-ERR Protocol error: unauthenticated multibulk length"
    );
}

#[test]
fn two_clients_share_a_key() {
    let config = Config::default();
    let clock = ManualClock::new();
    let server = Server::new(config, None, ServerClock::Manual(clock.clone()), Snapshot::default());
    let mut one = Peer { clock, session: Session::new(Arc::clone(&server)) };
    let mut other = one.another(&server);
    assert_eq!(one.send("CL.THROTTLE k 0 1 60"), "*5 :0 :1 :0 :-1 :60");
    assert_eq!(other.send("CL.THROTTLE k 0 1 60"), "*5 :1 :1 :0 :60 :60");
}

#[test]
fn a_command_like_the_last_one_is_queued_in_a_transaction_too() {
    let mut peer = Peer::new();
    let throttle = "CL.THROTTLE a 1 1 60";
    assert_eq!(peer.send(throttle), "*5 :0 :2 :1 :-1 :60");
    assert_eq!(peer.send("MULTI"), "+OK");
    assert_eq!(peer.send("CL.THROTTLE b 1 1 60"), "+QUEUED");
    assert_eq!(peer.send("EXEC"), "*1 *5 :0 :2 :1 :-1 :60");
    assert_eq!(peer.send(throttle), "*5 :0 :2 :0 :-1 :120");
}

#[test]
fn a_client_whose_token_was_removed_is_refused_the_command_that_it_repeats() {
    let mut peer = with_token();
    let throttle = array(&[b"CL.THROTTLE", b"a", b"1", b"1", b"60"]);
    assert_eq!(peer.send("AUTH hush"), "+OK");
    assert_eq!(peer.raw(&throttle).1, "*5 :0 :2 :1 :-1 :60");
    assert_eq!(peer.send("RESET"), "+RESET");
    assert_eq!(peer.raw(&throttle).1, "-NOAUTH Authentication required.");
}

fn commands() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = prop::collection::vec(prop::sample::select(b"ab$*:1\r\n".to_vec()), 0..4);
    let numbers =
        prop::sample::select(vec!["1 1 60", "1 1 60", "2 5 60", "1 1 60 2", "1 x 60", "1 1"]);
    let throttle = (key, numbers).prop_map(|(key, numbers)| {
        let mut words: Vec<&[u8]> = vec![b"CL.THROTTLE", &key];
        words.extend(numbers.split(' ').map(str::as_bytes));
        array(&words)
    });
    let line = prop::sample::select(vec!["CL.THROTTLE ab 1 1 60", "CL.THROTTLE a 1 1 60", "PING"]);
    let line = line.prop_map(|line| format!("{line}\r\n").into_bytes());
    prop::collection::vec(prop_oneof![9 => throttle, 1 => line], 1..40)
}

proptest! {
    /// A repeated command, which the session does not parse again, gets the answer of a parsed one, however the input is cut.
    #[test]
    fn commands_in_a_row_are_answered_as_if_each_came_alone(
        commands in commands(),
        step in 1_usize..200,
    ) {
        let clock = ManualClock::new();
        let server = || Server::new(
            Config::default(), None, ServerClock::Manual(clock.clone()), Snapshot::default(),
        );
        let (together, alone) = (server(), server());
        let mut expected = String::new();
        for command in &commands {
            let mut peer = Peer { clock: clock.clone(), session: Session::new(Arc::clone(&alone)) };
            expected += &(peer.raw(command).1 + " ");
        }
        let mut peer = Peer { clock: clock.clone(), session: Session::new(together) };
        let (mut input, mut received) = (Vec::new(), String::new());
        for piece in commands.concat().chunks(step) {
            input.extend_from_slice(piece);
            let (done, reply) = peer.raw(&input);
            input.drain(..done);
            if !reply.is_empty() {
                received += &(reply + " ");
            }
        }
        prop_assert!(input.is_empty());
        prop_assert_eq!(received, expected);
    }
}
