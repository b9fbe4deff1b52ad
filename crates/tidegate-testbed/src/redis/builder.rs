//! How a server is to be, as lines of its configuration.
//!
//! Always   The file is the truth: `CONFIG REWRITE` and sentinels write to it, and a restart reads what they wrote.
//! Always   What a test asks for comes after our own lines, and so wins.

use std::fmt::Write as _;

use super::certificates::Certificates;
use super::server::RedisServer;
use crate::directory::Directory;
use crate::port::Port;

/// What every server has. Nothing is kept on disk; replicas are fed at once instead of after five seconds in which
/// others might come; `DEBUG` works, with which tests make a server slow or sick.
const DEFAULTS: &str = "\
bind 127.0.0.1
protected-mode no
daemonize no
save \"\"
appendonly no
repl-diskless-sync-delay 0
enable-debug-command yes
";

/// Whom [`RedisServer::command`] speaks as: one that a test cannot lock out with passwords and users of its own.
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
    /// A line of `redis.conf`, for example `("maxmemory-policy", "allkeys-lru")`.
    pub fn option(self, name: &str, value: &str) -> Self {
        self.line(&format!("{name} {value}"))
    }

    /// Keeps what was written, also when it is killed.
    pub fn append_only(self) -> Self {
        self.option("appendonly", "yes")
    }

    /// Starts as a replica, and has a first copy of everything when [`Builder::start`] returns.
    pub fn replica_of(mut self, primary: &RedisServer) -> Self {
        assert!(!primary.is_tls(), "replicas are not made to speak TLS");
        self.is_replica = true;
        self.option("replicaof", &format!("127.0.0.1 {}", primary.port()))
    }

    /// A user, written as in `redis.conf`: `user limiter on >secret ~* +@all`.
    pub fn acl(self, user: &str) -> Self {
        assert!(user.starts_with("user "), "a line that defines a user begins with `user `");
        self.line(user)
    }

    /// Speaks TLS only, with a certificate for `localhost` and 127.0.0.1; see [`RedisServer::ca_path`].
    pub fn tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    /// Starts it, and returns when it answers.
    pub fn start(self) -> RedisServer {
        RedisServer::start_as(&self)
    }

    /// Keeps no keys and watches over others that do.
    pub(crate) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// Options that those of the test are stronger than.
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
            writeln!(text, "{name} {value}").expect("a string takes everything");
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

/// The names of what is in a server's directory.
pub(super) const CONFIG: &str = "redis.conf";
pub(super) const SOCKET: &str = "socket";
pub(super) const LOG: &str = "log";
