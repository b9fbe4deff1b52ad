//! T51: inputs that have crashed Redis servers.

use crate::harness::{
    Peer, array, assert_grew_less, assert_serves, eventually, rss_bytes, secs, start_exclusive,
};
use std::io::{Read, Write};
use tidegate_server::config::Token;

fn hostile() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "*1000000000\r\n",
        "*2147483647\r\n$4\r\nPING\r\n",
        "*-1\r\n",
        "*-2147483648\r\n",
        "*9223372036854775808\r\n",
        "*1\r\n$2147483647\r\n",
        "*1\r\n$-2\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$0\r\n\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nx\r\n",
        "*1\r\n$4\r\nPINGxx\r\n",
        "*1\n$4\nPING\n",
        "\r\r\r\r\r\r",
        "\n\n\n\n",
        ">2\r\n+message\r\n+x\r\n",
        "|1\r\n+key\r\n+value\r\n*1\r\n$4\r\nPING\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "~1\r\n+a\r\n",
        "_\r\n#t\r\n,1.5\r\n(3492890328409238509324850943850943825024385\r\n",
        "=15\r\ntxt:Some string\r\n",
        "$5\r\nhello\r\n",
        "HELLO 3 AUTH default wrong\r\n",
        "HELLO 3 AUTH\r\n",
        "HELLO 999999999999999999999\r\n",
        "\"unbalanced\r\n",
        "MULTI\r\nMULTI\r\nEXEC\r\nEXEC\r\nDISCARD\r\n",
        "CL.THROTTLE k -9223372036854775808 9223372036854775807 0 18446744073709551616\r\n",
        "CL.THROTTLE k 9223372036854775807 9223372036854775807 9223372036854775807 \
         9223372036854775807\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    all.push(b"*1\r\n".repeat(200_000));
    all.push(vec![b'x'; 64 << 10]);
    all.push(vec![0; 100_000]);
    all.push(b"a ".repeat(100_000));
    all.push(array(&[&vec![b'x'; 600 << 10]]));
    all.push(array(&vec![b"x".as_slice(); 2_000]));
    all
}

// T51
#[test]
fn no_input_crashes_the_server() {
    for tokens in [Vec::new(), vec![Token::new("hush")]] {
        let has_tokens = !tokens.is_empty();
        let running = start_exclusive(|config| config.server.tokens = tokens);
        let before = rss_bytes();
        let mut others = Vec::new();
        for bytes in hostile() {
            for cut in [bytes.len(), bytes.len() / 2] {
                let mut peer = Peer::resp(&running);
                peer.0.set_write_timeout(Some(secs(2))).unwrap();
                peer.send(&bytes[..cut]);
                others.push(peer);
            }
            let reply = Peer::resp(&running).ask("PING");
            assert!(
                if has_tokens { reply.starts_with("-NOAUTH") } else { reply == "+PONG" },
                "{reply}"
            );
        }
        assert_grew_less(before, 64 << 20);
        drop(others);
        let open = || running.server.status.connections.sum();
        eventually("all connections are closed", secs(10), || open() == 0);
        running.stop().expect("no worker has panicked");
    }
}

// T51
#[test]
fn an_unauthenticated_command_has_few_arguments_and_bytes() {
    let running = start_exclusive(|config| config.server.tokens = vec![Token::new("hush")]);
    let line = [&b"x ".repeat(32_000)[..], b"\r\n"].concat();
    let before = rss_bytes();
    let mut peers: Vec<Peer> = (0..100).map(|_| Peer::resp(&running)).collect();
    for peer in &mut peers {
        peer.send(&line);
        assert_eq!(peer.line(), "-ERR Protocol error: unauthenticated multibulk length");
    }
    assert_grew_less(before, 32 << 20);
    for (words, bytes, is_cut) in
        [(10, 1, false), (11, 1, true), (2, 16 << 10, false), (2, (16 << 10) + 1, true)]
    {
        let mut peer = Peer::resp(&running);
        peer.send(array(&vec![vec![b'x'; bytes].as_slice(); words]));
        let reply = peer.line();
        assert_eq!(reply.starts_with("-ERR Protocol error: unauthenticated"), is_cut, "{reply}");
    }
    running.stop().unwrap();
}

// T51
#[test]
fn a_million_commands_at_once_are_answered_one_by_one() {
    let running = start_exclusive(|_| ());
    let before = rss_bytes();
    let peer = Peer::resp(&running).0;
    let mut writer = peer.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let many = b"PING\r\n".repeat(1_000);
        (0..1_000).all(|_| writer.write_all(&many).is_ok())
    });
    let (mut received, mut piece) = (0, vec![0; 65_536]);
    let mut reader = peer;
    while received < 7_000_000 {
        let read = reader.read(&mut piece).expect("the server answers");
        assert!(read > 0, "the server closed the connection after {received} bytes");
        received += read;
    }
    assert!(sender.join().unwrap());
    assert_grew_less(before, 32 << 20);
    assert_serves(&running);
    running.stop().unwrap();
}
