//! Errors repeat a client's input, escaped so that no terminal and no log interprets it.

use super::{Peer, array, named};
use tidegate_server::config::{Config, Mode};

/// Bytes that make a terminal change its colour, ring, move its cursor or reorder text; the last are not UTF-8.
const HOSTILE: [&[u8]; 9] = [
    b"\x1b[31m",
    b"\x07",
    b"\0",
    b"\x7f",
    "\u{9b}31m".as_bytes(),
    "\u{202e}".as_bytes(),
    b"a\r\n-ERR forged",
    b"\t\x0b\x0c\x08",
    b"\xff\x9b31m",
];

/// All commands, and an unknown one. The test replaces one word of each by hostile bytes.
const COMMANDS: [&str; 22] = [
    "CL.THROTTLE k 1 1 60 1",
    "TIDE.CHECK 1/s k COST 1",
    "TIDE.CHECKALL 1/s k 1",
    "TIDE.PEEK 1/s k COST 1",
    "TIDE.RESET 1/s k",
    "TIDE.REFUND 1/s k COST 1",
    "TIDE.ACQUIRE 1/s k COST 1",
    "TIDE.RELEASE 1",
    "AUTH user token",
    "CLIENT SETNAME a",
    "CLIENT NONSENSE a",
    "COMMAND NONSENSE",
    "CONFIG GET a",
    "DEL a",
    "ECHO a b",
    "HELLO 3 AUTH user token SETNAME a",
    "INFO a",
    "MULTI a",
    "PING a b",
    "SELECT 0",
    "TIME a",
    "NONSENSE a b c",
];

fn is_harmless(error: &[u8]) -> bool {
    let text = std::str::from_utf8(error);
    text.is_ok_and(|text| !text.chars().any(|c| c.is_control() || c == '\u{202e}'))
}

#[test]
fn no_error_repeats_a_control_character_of_the_client() {
    let (mut errors, mut forged) = (0, 0);
    for command in COMMANDS {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        for place in 0..words.len() {
            for hostile in HOSTILE {
                let mut words = words.clone();
                words[place] = hostile;
                let (_, reply) = Peer::new().bytes(&array(&words));
                let Some(error) = reply.strip_prefix(b"-") else { continue };
                let error = error.strip_suffix(b"\r\n").expect("the error ends with a line break");
                assert!(
                    is_harmless(error),
                    "{command}, {place}: {:?}",
                    error.escape_ascii().to_string()
                );
                errors += 1;
                forged += usize::from(error.windows(6).any(|six| six == b"forged"));
            }
        }
    }
    assert!(errors > 300 && forged > 20, "only {errors} errors, {forged} of them with the word");
}

#[test]
fn errors_repeat_the_clients_words_readably() {
    let reply = Peer::new().raw(&array(&[b"\x1b[31mno", b"\xffyes"])).1;
    assert_eq!(reply, r"-ERR unknown command '\u001b[31mno', with args beginning with: '\xffyes'");
    let mut peer = Peer::new();
    assert_eq!(peer.raw(b"*1\r\n\x1b").1, r"-ERR Protocol error: expected '$', got '\u001b'");
}

#[test]
fn without_ad_hoc_rules_commands_with_a_rule_are_errors() {
    let limits = vec![named("kept", "9/h", Mode::Enforce)];
    let mut config = Config { limits, ..Config::default() };
    config.server.has_ad_hoc_rules = false;
    let mut peer = Peer::of(config);
    for words in [
        &["TIDE.CHECK", "5/h", "k"][..],
        &["TIDE.CHECKALL", "5/h", "k", "1"],
        &["TIDE.CHECKALL", "kept", "k", "1", "5/h", "k", "1"],
        &["TIDE.PEEK", "5/h", "k"],
        &["TIDE.REFUND", "5/h", "k"],
        &["TIDE.ACQUIRE", "concurrency 1", "k"],
    ] {
        let said = peer.words(words);
        assert!(said.starts_with("-ERR no limit is named `"), "{said}");
        assert!(said.contains("`ad_hoc_rules = false`"), "{said}");
    }
    assert!(
        peer.send("TIDE.PEEK kept k COST 0").starts_with("*5 :1 :9 :9 "),
        "nothing was charged"
    );
    assert!(peer.send("CL.THROTTLE k 15 30 60").starts_with("*5 :0 "), "it is no ad-hoc rule");
}
