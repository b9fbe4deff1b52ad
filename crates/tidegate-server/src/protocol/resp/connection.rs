//! Commands that client libraries send about the connection and the server.

use super::command::{COMMANDS, Command, CommandSpec, find};
use super::parse::Words;
use super::reply::{Version, shown};
use super::session::Session;
use crate::config::Token;
use crate::escape::Escaped;
use std::sync::atomic::Ordering;
use tidegate::Clock;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The Redis version that clients see: they choose the commands that they send by it.
const REDIS_VERSION: &str = "7.0.0";
/// Number of wrong tokens after which the connection is closed.
const WRONG_TOKENS_MAX: u32 = 8;

pub(super) fn run(session: &mut Session, command: Command, bytes: &[u8], words: &Words) {
    if let Err(error) = command.check_arity(words.len()) {
        return session.reply.error(error);
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

/// `AUTH token`, or `AUTH user token` with any user. Returns whether the client is authenticated; appends an error if not.
fn authenticate(session: &mut Session, has_right_arity: bool, token: &[u8]) -> bool {
    if !has_right_arity {
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
    // The commands of one `EXEC` may contain more tokens. No token is compared after the last wrong one.
    if session.wrong_tokens >= WRONG_TOKENS_MAX || !session.server.admits(Some(token)) {
        let message = "WRONGPASS invalid username-password pair or user is disabled.";
        session.reply.error(message);
        session.server.status.wrong_tokens.resp.fetch_add(1, Ordering::Relaxed);
        // A client that guesses has to reconnect often.
        session.wrong_tokens += 1;
        session.is_over = session.wrong_tokens >= WRONG_TOKENS_MAX;
        return false;
    }
    session.is_authenticated = true;
    session.token = std::str::from_utf8(token).ok().map(Token::new);
    session.update_peer();
    true
}

/// Checks the client's token again after the server's tokens have changed. A client whose token is no longer valid loses its
/// transaction.
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
    let mut position = 2;
    let mut name = None;
    while position < words.len() {
        let option = words.get(bytes, position);
        if option.eq_ignore_ascii_case(b"AUTH") && position + 2 < words.len() {
            if !authenticate(session, true, words.get(bytes, position + 2)) {
                return;
            }
            position += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && position + 1 < words.len() {
            name = Some(words.get(bytes, position + 1));
            position += 2;
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
    let id = integer(session.id);
    let reply = &mut session.reply;
    let version = reply.version.number();
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
    let subcommand = words.get(bytes, 1);
    let is = |name: &[u8]| subcommand.eq_ignore_ascii_case(name);
    if is(b"SETNAME") && words.len() == 3 {
        if set_name(session, words.get(bytes, 2)) {
            session.reply.ok();
        }
    } else if is(b"GETNAME") {
        let name = session.name.clone();
        session.reply.bulk(name);
    } else if is(b"ID") {
        session.reply.integer(integer(session.id));
    } else if is(b"SETINFO") || is(b"NO-EVICT") || is(b"NO-TOUCH") {
        session.reply.ok();
    } else if is(b"INFO") || is(b"LIST") {
        let name = Escaped::new(&session.name);
        let version = session.reply.version.number();
        let line = format!("id={} name={name} db=0 resp={version}\n", session.id);
        session.reply.bulk(line);
    } else {
        let subcommand = shown(subcommand);
        session.reply.error(format_args!("ERR unknown subcommand '{subcommand}'. Try CLIENT ID."));
    }
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND INFO name…`, `COMMAND DOCS`.
fn command_info(session: &mut Session, bytes: &[u8], words: &Words) {
    let subcommand = words.get(bytes, 1);
    let reply = &mut session.reply;
    if words.len() == 1 {
        reply.array(COMMANDS.len());
        for row in COMMANDS {
            describe(session, row);
        }
    } else if subcommand.eq_ignore_ascii_case(b"COUNT") {
        reply.integer(integer(COMMANDS.len() as u64));
    } else if subcommand.eq_ignore_ascii_case(b"INFO") {
        reply.array(words.len() - 2);
        for name in words.from(bytes, 2) {
            match find(name) {
                Some(row) => describe(session, row),
                None => session.reply.null(),
            }
        }
    } else if subcommand.eq_ignore_ascii_case(b"DOCS") {
        reply.map(0);
    } else {
        let subcommand = shown(subcommand);
        reply.error(format_args!("ERR unknown subcommand '{subcommand}'. Try COMMAND COUNT."));
    }
}

fn describe(session: &mut Session, row: &CommandSpec) {
    let reply = &mut session.reply;
    let (first, last, step) = row.keys;
    reply.array(6);
    reply.bulk(row.name);
    reply.integer(row.arity);
    reply.array(2);
    reply.simple(if first > 0 { "write" } else { "readonly" });
    reply.simple("fast");
    for key in [first, last, step] {
        reply.integer(key);
    }
}

/// `CONFIG GET`, which load generators send. The answer is empty.
fn config(session: &mut Session, subcommand: &[u8]) {
    if subcommand.eq_ignore_ascii_case(b"GET") {
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

fn time(session: &mut Session) {
    let now = session.server.engine.clock().calendar_now().as_micros();
    session.reply.array(2);
    session.reply.bulk((now / 1_000_000).to_string());
    session.reply.bulk((now % 1_000_000).to_string());
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
