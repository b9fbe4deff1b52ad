//! Builds the configuration of a server.
//!
//! Always   The file is authoritative: `CONFIG REWRITE` and sentinels write to it, and a restart reads it.
//! Always   Options of a test come after the defaults, and so override them.

use std::fmt::Write as _;

use super::certificates::Certificates;
use crate::directory::Directory;
use crate::port::Port;

/// Options of every server. Nothing is stored on disk; replication starts at once instead of after five seconds;
/// `DEBUG` is enabled, with which tests make a server slow or unavailable.
const DEFAULTS: &str = "\
bind 127.0.0.1
protected-mode no
daemonize no
save \"\"
appendonly no
repl-diskless-sync-delay 0
enable-debug-command yes
";

/// The user of `RedisServer::command`, which passwords and users of a test do not lock out.
pub(super) const USER: &str = "testbed";

/// A server that has not been started.
#[derive(Clone, Default)]
#[must_use]
pub struct Builder {
    lines: String,
    is_tls: bool,
    is_replica: bool,
    is_sentinel: bool,
}

impl Builder {
    /// Adds a line of `redis.conf`, for example `("maxmemory-policy", "allkeys-lru")`.
    pub fn option(self, name: &str, value: &str) -> Self {
        self.line(&format!("{name} {value}"))
    }

    /// Makes writes durable, also when the server is killed.
    pub fn append_only(self) -> Self {
        self.option("appendonly", "yes")
    }

    /// Adds a user, written as in `redis.conf`: `user limiter on >secret ~* +@all`.
    pub fn acl(self, user: &str) -> Self {
        assert!(user.starts_with("user "), "a line that defines a user begins with `user `");
        self.line(user)
    }

    /// Makes it accept TLS only, with a certificate for `localhost` and 127.0.0.1; see
    /// [`RedisServer::ca_path`](super::RedisServer::ca_path).
    pub fn tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    /// Makes it a replica of the server on this port.
    pub(super) fn replica_of_port(mut self, primary: u16) -> Self {
        self.is_replica = true;
        self.option("replicaof", &format!("127.0.0.1 {primary}"))
    }

    /// Makes it a sentinel.
    pub(crate) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// Adds options that the test can override.
    pub(crate) fn before(mut self, options: &[(&str, &str)]) -> Self {
        let weaker =
            options.iter().fold(Self::default(), |all, (name, value)| all.option(name, value));
        self.lines.insert_str(0, &weaker.lines);
        self
    }

    fn line(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(super) fn is_replica(&self) -> bool {
        self.is_replica
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.is_sentinel
    }

    /// Writes the files of a server in this directory and on this port.
    pub(super) fn write(&self, directory: &Directory, port: &Port) {
        let mut text = DEFAULTS.to_owned();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "{name} {value}").expect("writing to a string cannot fail");
        };
        line("user", &format!("{USER} on nopass ~* &* +@all"));
        line("dir", &directory.path().display());
        line("unixsocket", &directory.join(SOCKET).display());
        line("port", &if self.is_tls { 0 } else { port.number() });
        if self.is_tls {
            let files = Certificates::make(directory);
            line("tls-port", &port.number());
            line("tls-auth-clients", &"no");
            line("tls-ca-cert-file", &files.authority.display());
            line("tls-cert-file", &files.certificate.display());
            line("tls-key-file", &files.key.display());
        }
        directory.write(CONFIG, &(text + &self.lines));
    }
}

/// File names in a server's directory.
pub(super) const CONFIG: &str = "redis.conf";
pub(super) const SOCKET: &str = "socket";
pub(super) const LOG: &str = "log";
