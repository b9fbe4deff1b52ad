//! Commands that client libraries send after connecting.

use crate::{Peer, with_token};

#[test]
fn hello_chooses_the_protocol_version() {
    let mut peer = with_token();
    let said = peer.say("HELLO 3 AUTH default hush SETNAME me");
    assert!(said.starts_with("%7 $6 server $8 tidegate $7 version"), "{said}");
    assert!(said.contains("$5 proto :3"), "{said}");
    assert_eq!(peer.say("CLIENT GETNAME"), "$2 me");
    assert!(peer.say("HELLO 2").starts_with("*14 $6 server"));
    assert!(peer.say("HELLO 4").starts_with("-NOPROTO"));
}

#[test]
fn client_libraries_find_the_commands_that_they_need() {
    let mut peer = Peer::new();
    assert_eq!(peer.say("PING"), "+PONG");
    assert_eq!(peer.say("PING hi"), "$2 hi");
    assert_eq!(peer.say("ECHO hi"), "$2 hi");
    assert_eq!(peer.say("SELECT 0"), "+OK");
    assert!(peer.say("SELECT 1").starts_with("-ERR DB index"));
    assert_eq!(peer.say("CLIENT SETINFO LIB-NAME x"), "+OK");
    assert_eq!(peer.say("CLIENT SETNAME x"), "+OK");
    assert_eq!(peer.words(&["CLIENT", "SETNAME", "a b"]).chars().next(), Some('-'));
    assert!(peer.say("CLIENT TRACKING ON").starts_with("-ERR unknown subcommand"));
    assert!(peer.say("INFO").contains("loading:0"));
    assert_eq!(peer.say("COMMAND COUNT"), ":24");
    assert_eq!(
        peer.say("COMMAND INFO cl.throttle"),
        "*1 *6 $11 cl.throttle :-1 *2 +write +fast :1 :1 :1"
    );
    assert_eq!(peer.say("COMMAND INFO nonsense"), "*1 $-1");
    assert_eq!(peer.say("COMMAND DOCS"), "*0");
    assert_eq!(peer.say("CONFIG GET save"), "*0");
    assert!(
        peer.say("NONSENSE a")
            .starts_with("-ERR unknown command 'NONSENSE', with args beginning with: 'a'")
    );
    assert!(peer.say("ECHO").starts_with("-ERR wrong number of arguments for 'echo'"));
    assert_eq!(peer.say("QUIT"), "+OK");
    assert!(peer.session.is_over());
}

/// Neither can be had for the test command, so this is what they send when they connect, as their sources have it.
#[test]
fn jedis_and_lettuce_find_the_commands_that_they_need() {
    // Lettuce 6 and 7: by RESP3; what it wants besides may be refused.
    let mut lettuce = with_token();
    let said = lettuce.say("HELLO 3 AUTH default hush SETNAME app");
    for member in ["$2 id :", "$4 mode $10 standalone", "$7 version $", "$4 role $6 master"] {
        assert!(said.contains(member), "{member} in {said}");
    }
    assert_eq!(lettuce.say("CLIENT SETINFO lib-name Lettuce"), "+OK");
    assert_eq!(lettuce.say("CLIENT SETINFO lib-ver 6.8.1.RELEASE/0b2e6d6"), "+OK");
    let said = lettuce.say("CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type none");
    assert!(said.starts_with("-ERR "), "{said}");
    assert_eq!(lettuce.say("CL.THROTTLE k 15 30 60 1"), "*5 :0 :16 :15 :-1 :2");
    // Jedis 5 and 6: by RESP2 unless told; refusals of what it says of itself must be of something unknown.
    let mut jedis = with_token();
    assert_eq!(jedis.say("AUTH hush"), "+OK");
    assert_eq!(jedis.say("CLIENT SETNAME app"), "+OK");
    assert_eq!(jedis.say("CLIENT SETINFO LIB-NAME jedis"), "+OK");
    assert_eq!(jedis.say("CLIENT SETINFO LIB-VER 6.2.0"), "+OK");
    assert_eq!(jedis.say("PING"), "+PONG");
    assert_eq!(jedis.say("CL.THROTTLE k 15 30 60 1"), "*5 :0 :16 :15 :-1 :2");
    assert!(jedis.say("HELLO 3").starts_with("%7 "), "and by RESP3 when told");
    assert_eq!(jedis.say("CL.THROTTLE k 15 30 60 0"), "*5 :0 :16 :15 :-1 :2");
}
