//! What client libraries send to find out whom they talk to.

use super::command::{COMMANDS, Command, Known};
use super::parse::Words;
use super::reply::Version;
use super::session::{Session, shown};
use crate::config::Token;
use crate::escape::Escaped;
use crate::server::Wire;
use std::sync::atomic::Ordering;
use tidegate::Clock;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Clients look at it to know what they may send.
const REDIS_VERSION: &str = "7.0.0";
/// Who has offered so many wrong tokens is left.
const WRONG_TOKENS_MAX: u32 = 8;

pub(super) fn run(session: &mut Session, command: Command, bytes: &[u8], words: &Words) {
    if !command.takes(words.len()) {
        let name = COMMANDS.iter().find(|known| known.command == command);
        let name = name.map_or("", |known| known.name);
        session.reply.error(format_args!("ERR wrong number of arguments for '{name}' command"));
        return;
    }
    let first = words.get(bytes, 1);
    match command {
        Command::Ping if words.len() == 1 => session.reply.simple("PONG"),
        Command::Ping | Command::Echo => session.reply.bulk(first),
        Command::Quit => {
            session.reply.ok();
            session.is_over = true;
        }
        Command::Hello => hello(session, bytes, words),
        Command::Auth => {
            let token = words.get(bytes, words.len() - 1);
            if authenticate(session, words.len() <= 3, token) {
                session.reply.ok();
            }
        }
        Command::Select if first == b"0" => session.reply.ok(),
        Command::Select => session.reply.error("ERR DB index is out of range: there is only 0"),
        Command::Client => client(session, bytes, words),
        Command::Describe => command_info(session, bytes, words),
        Command::Config => config(session, first),
        Command::Info => info(session),
        Command::Time => time(session),
        Command::Reset => {
            session.transaction = None;
            session.name.clear();
            session.reply.version = Version::Two;
            session.is_authenticated = session.server.admits(None);
            session.token = None;
            session.update_peer();
            session.reply.simple("RESET");
        }
        _ => session.unknown(bytes, words),
    }
}

/// `AUTH token`, or `AUTH user token` with any user. Says what is wrong with it.
fn authenticate(session: &mut Session, is_form: bool, token: &[u8]) -> bool {
    if !is_form {
        session.reply.error("ERR syntax error: AUTH token, or AUTH user token");
        return false;
    }
    if session.server.admits(None) {
        session.reply.error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        );
        return false;
    }
    if !session.server.admits(Some(token)) {
        let message = "WRONGPASS invalid username-password pair or user is disabled.";
        session.reply.error(message);
        session.server.status.wrong_tokens.resp.fetch_add(1, Ordering::Relaxed);
        // Who guesses has to connect again and again, and connections are few.
        session.wrong_tokens += 1;
        session.is_over = session.wrong_tokens >= WRONG_TOKENS_MAX;
        return false;
    }
    session.is_authenticated = true;
    session.token = std::str::from_utf8(token).ok().map(Token::new);
    session.update_peer();
    true
}

/// Tokens have changed. Who has shown none that opens is a stranger again, and nothing that it has begun goes on.
pub(super) fn reauthenticate(session: &mut Session) {
    let token = session.token.as_ref().map(Token::bytes);
    session.is_authenticated = session.server.admits(token);
    if !session.is_authenticated {
        session.token = None;
        session.transaction = None;
    }
    session.update_peer();
}

/// `HELLO [2|3 [AUTH user token] [SETNAME name]]`
fn hello(session: &mut Session, bytes: &[u8], words: &Words) {
    let mut version = session.reply.version;
    if words.len() > 1 {
        version = match words.get(bytes, 1) {
            b"2" => Version::Two,
            b"3" => Version::Three,
            _ => return session.reply.error("NOPROTO unsupported protocol version"),
        };
    }
    let mut place = 2;
    let mut name = None;
    while place < words.len() {
        let option = words.get(bytes, place);
        if option.eq_ignore_ascii_case(b"AUTH") && place + 2 < words.len() {
            if !authenticate(session, true, words.get(bytes, place + 2)) {
                return;
            }
            place += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && place + 1 < words.len() {
            name = Some(words.get(bytes, place + 1));
            place += 2;
        } else {
            return session.reply.error("ERR syntax error in HELLO");
        }
    }
    if !session.is_authenticated {
        return session.reply.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        );
    }
    if let Some(name) = name
        && !set_name(session, name)
    {
        return;
    }
    session.reply.version = version;
    greet(session);
}

fn greet(session: &mut Session) {
    let id = i64::try_from(session.id).unwrap_or(i64::MAX);
    let reply = &mut session.reply;
    let version = if reply.version == Version::Three { 3 } else { 2 };
    reply.map(7);
    for (name, value) in [("server", "tidegate"), ("version", REDIS_VERSION)] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("proto");
    reply.integer(version);
    reply.bulk("id");
    reply.integer(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("modules");
    reply.array(0);
}

fn set_name(session: &mut Session, name: &[u8]) -> bool {
    if name.len() > 128 || name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        session.reply.error(
            "ERR Client names cannot contain spaces, newlines or special characters, and have at most \
             128 bytes.",
        );
        return false;
    }
    session.name = name.to_vec();
    true
}

fn client(session: &mut Session, bytes: &[u8], words: &Words) {
    let what = words.get(bytes, 1);
    let is = |name: &[u8]| what.eq_ignore_ascii_case(name);
    if is(b"SETNAME") && words.len() == 3 {
        if set_name(session, words.get(bytes, 2)) {
            session.reply.ok();
        }
    } else if is(b"GETNAME") {
        let name = session.name.clone();
        session.reply.bulk(name);
    } else if is(b"ID") {
        session.reply.integer(i64::try_from(session.id).unwrap_or(i64::MAX));
    } else if is(b"SETINFO") || is(b"NO-EVICT") || is(b"NO-TOUCH") {
        session.reply.ok();
    } else if is(b"INFO") || is(b"LIST") {
        let name = Escaped::new(&session.name);
        let version = if session.reply.version == Version::Three { 3 } else { 2 };
        let line = format!("id={} name={name} db=0 resp={version}\n", session.id);
        session.reply.bulk(line);
    } else {
        let what = shown(what);
        session.reply.error(format_args!("ERR unknown subcommand '{what}'. Try CLIENT ID."));
    }
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND INFO name…`, `COMMAND DOCS`.
fn command_info(session: &mut Session, bytes: &[u8], words: &Words) {
    let what = words.get(bytes, 1);
    let reply = &mut session.reply;
    if words.len() == 1 {
        reply.array(COMMANDS.len());
        for known in COMMANDS {
            describe(session, known);
        }
    } else if what.eq_ignore_ascii_case(b"COUNT") {
        reply.integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX));
    } else if what.eq_ignore_ascii_case(b"INFO") {
        reply.array(words.len() - 2);
        for name in words.from(bytes, 2) {
            let is = |known: &&Known| name.eq_ignore_ascii_case(known.name.as_bytes());
            match COMMANDS.iter().find(is) {
                Some(known) => describe(session, known),
                None => session.reply.null(),
            }
        }
    } else if what.eq_ignore_ascii_case(b"DOCS") {
        reply.map(0);
    } else {
        let what = shown(what);
        reply.error(format_args!("ERR unknown subcommand '{what}'. Try COMMAND COUNT."));
    }
}

fn describe(session: &mut Session, known: &Known) {
    let reply = &mut session.reply;
    reply.array(6);
    reply.bulk(known.name);
    reply.integer(known.arity);
    reply.array(2);
    reply.simple(if known.is_write { "write" } else { "readonly" });
    reply.simple("fast");
    let (first, last, step) = known.keys;
    for key in [first, last, step] {
        reply.integer(key);
    }
}

/// `CONFIG GET`, which load generators ask for: there is nothing to get here.
fn config(session: &mut Session, what: &[u8]) {
    if what.eq_ignore_ascii_case(b"GET") {
        session.reply.map(0);
    } else {
        session.reply.error("ERR the configuration is a file: change it and reload");
    }
}

fn info(session: &mut Session) {
    let stats = session.server.engine.store().throttle_stats();
    let connections = session.server.status.connections.resp.load(Ordering::Relaxed);
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\ntidegate_version:{VERSION}\r\n\
         redis_mode:standalone\r\nprocess_id:{}\r\n\r\n# Clients\r\nconnected_clients:{connections}\r\n\
         \r\n# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n\r\n# Throttle\r\n\
         keys:{}\r\nkeys_max:{}\r\nallowed:{}\r\ndenied:{}\r\n",
        std::process::id(),
        stats.keys,
        stats.max_keys,
        stats.allowed,
        stats.denied,
    );
    session.reply.bulk(text);
}

/// `DEL key…`: forgets what keys of `CL.THROTTLE` owe.
pub(super) async fn del(session: &mut Session, bytes: &[u8], words: &Words) {
    let _waiting = match session.server.wait(Wire::Resp, session.peer) {
        Ok(waiting) => waiting,
        Err(busy) => return session.reply.error(format_args!("BUSY {busy}")),
    };
    let mut deleted = 0;
    for key in words.from(bytes, 1) {
        match session.server.engine.reset_throttle(key).await {
            Ok(has_owed) => deleted += i64::from(has_owed),
            Err(error) => return session.reply.error(format_args!("TRYAGAIN {error}")),
        }
    }
    session.reply.integer(deleted);
}

fn time(session: &mut Session) {
    let now = session.server.engine.clock().calendar_now().as_micros();
    session.reply.array(2);
    session.reply.bulk((now / 1_000_000).to_string());
    session.reply.bulk((now % 1_000_000).to_string());
}
