//! Commands that client libraries send after connecting.

use crate::{Peer, with_token};

#[test]
fn hello_chooses_the_protocol_version() {
    let mut peer = with_token();
    let reply = peer.send("HELLO 3 AUTH default hush SETNAME me");
    assert!(reply.starts_with("%7 $6 server $8 tidegate $7 version"), "{reply}");
    assert!(reply.contains("$5 proto :3"), "{reply}");
    assert_eq!(peer.send("CLIENT GETNAME"), "$2 me");
    assert!(peer.send("HELLO 2").starts_with("*14 $6 server"));
    assert!(peer.send("HELLO 4").starts_with("-NOPROTO"));
}

#[test]
fn client_libraries_find_the_commands_that_they_need() {
    let mut peer = Peer::new();
    assert_eq!(peer.send("PING"), "+PONG");
    assert_eq!(peer.send("PING hi"), "$2 hi");
    assert_eq!(peer.send("ECHO hi"), "$2 hi");
    assert_eq!(peer.send("SELECT 0"), "+OK");
    assert!(peer.send("SELECT 1").starts_with("-ERR DB index"));
    assert_eq!(peer.send("CLIENT SETINFO LIB-NAME x"), "+OK");
    assert_eq!(peer.send("CLIENT SETNAME x"), "+OK");
    assert_eq!(peer.words(&["CLIENT", "SETNAME", "a b"]).chars().next(), Some('-'));
    assert!(peer.send("CLIENT TRACKING ON").starts_with("-ERR unknown subcommand"));
    assert!(peer.send("INFO").contains("loading:0"));
    assert_eq!(peer.send("COMMAND COUNT"), ":24");
    assert_eq!(
        peer.send("COMMAND INFO cl.throttle"),
        "*1 *6 $11 cl.throttle :-1 *2 +write +fast :1 :1 :1"
    );
    assert_eq!(peer.send("COMMAND INFO nonsense"), "*1 $-1");
    assert_eq!(peer.send("COMMAND DOCS"), "*0");
    assert_eq!(peer.send("CONFIG GET save"), "*0");
    assert!(
        peer.send("NONSENSE a")
            .starts_with("-ERR unknown command 'NONSENSE', with args beginning with: 'a'")
    );
    assert!(peer.send("ECHO").starts_with("-ERR wrong number of arguments for 'echo'"));
    assert_eq!(peer.send("QUIT"), "+OK");
    assert!(peer.session.is_over());
}

/// Jedis and Lettuce are not installed for the tests, so the commands are copied from their sources.
#[test]
fn jedis_and_lettuce_find_the_commands_that_they_need() {
    // Lettuce 6 and 7 use RESP3. They accept an error for the last command.
    let mut lettuce = with_token();
    let reply = lettuce.send("HELLO 3 AUTH default hush SETNAME app");
    for member in ["$2 id :", "$4 mode $10 standalone", "$7 version $", "$4 role $6 master"] {
        assert!(reply.contains(member), "{member} in {reply}");
    }
    assert_eq!(lettuce.send("CLIENT SETINFO lib-name Lettuce"), "+OK");
    assert_eq!(lettuce.send("CLIENT SETINFO lib-ver 6.8.1.RELEASE/0b2e6d6"), "+OK");
    let reply = lettuce.send("CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type none");
    assert!(reply.starts_with("-ERR "), "{reply}");
    assert_eq!(lettuce.send("CL.THROTTLE k 15 30 60 1"), "*5 :0 :16 :15 :-1 :2");
    // Jedis 5 and 6 use RESP2 by default. They accept only an unknown-command error for `CLIENT SETINFO`.
    let mut jedis = with_token();
    assert_eq!(jedis.send("AUTH hush"), "+OK");
    assert_eq!(jedis.send("CLIENT SETNAME app"), "+OK");
    assert_eq!(jedis.send("CLIENT SETINFO LIB-NAME jedis"), "+OK");
    assert_eq!(jedis.send("CLIENT SETINFO LIB-VER 6.2.0"), "+OK");
    assert_eq!(jedis.send("PING"), "+PONG");
    assert_eq!(jedis.send("CL.THROTTLE k 15 30 60 1"), "*5 :0 :16 :15 :-1 :2");
    assert!(jedis.send("HELLO 3").starts_with("%7 "), "Jedis can choose RESP3");
    assert_eq!(jedis.send("CL.THROTTLE k 15 30 60 0"), "*5 :0 :16 :15 :-1 :2");
}
