//! T45: more connections than the maximum. The tests of `tidegate-cli` run out of descriptors.

use crate::harness::{
    Peer, assert_serves, eventually, exclusive, http, secs, server, start, status,
};
use std::sync::atomic::Ordering;
use tidegate_server::net;

// T45
#[test]
fn a_connection_over_the_maximum_is_rejected_with_the_reason_until_one_ends() {
    let running = start(|config| {
        config.server.caps.connections_max = 8;
        config.server.caps.first_byte = secs(60);
    });
    let at = running.addresses;
    let mut held: Vec<Peer> = (0..8).map(|_| Peer::resp(&running)).collect();
    for peer in &mut held {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    for _ in 0..200 {
        let mut peer = Peer::resp(&running);
        assert_eq!(peer.line(), "-ERR max number of clients reached");
        assert_eq!(peer.read_to_end(), Some(Vec::new()));
    }
    let refused = http(at.http, "GET / HTTP/1.1\r\nhost: localhost", b"");
    assert_eq!(status(&refused), "503");
    let rejected = &running.server.status.rejected;
    assert_eq!(rejected.resp.load(Ordering::Relaxed), 200);
    assert_eq!(rejected.http.load(Ordering::Relaxed), 1);
    // The admin listener still accepts connections.
    let live = http(at.admin, "GET /livez HTTP/1.1\r\nhost: localhost", b"");
    assert_eq!(status(&live), "200");
    drop(held);
    eventually("the server accepts a connection again", secs(1), || {
        Peer::resp(&running).ask("PING") == "+PONG"
    });
    running.stop().unwrap();
}

// T45
#[test]
fn a_thousand_short_connections_leave_nothing_behind() {
    let running = start(|_| ());
    for _ in 0..1_000 {
        drop(Peer::resp(&running));
    }
    let open = || running.server.status.connections.sum();
    eventually("all connections are closed", secs(5), || open() == 0);
    assert_eq!(Peer::resp(&running).ask("PING"), "+PONG");
    running.stop().unwrap();
}

#[test]
fn a_stopped_server_leaves_no_descriptor_behind() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("Linux lists the descriptors").count();
    let _guard = exclusive();
    let once = || {
        let running = net::start(server(|_| ())).unwrap();
        assert_serves(&running);
        running.stop().unwrap();
    };
    once();
    let before = open();
    (0..20).for_each(|_| once());
    // One server has more than ten descriptors. Tests without a server may open a few at the same time.
    assert!(open() < before + 10, "the process had {before} descriptors and has {}", open());
}
