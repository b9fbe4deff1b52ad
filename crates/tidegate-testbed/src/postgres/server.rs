//! A running server with an empty database.
//!
//! Always   It is stopped by SIGQUIT, as `pg_ctl stop -m immediate` does, also if the test is killed: after SIGKILL, a
//!          segment of shared memory would stay behind.
//! Always   Committed transactions are on disk, as in production, so that tests are not faster than production.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::account::Account;
use crate::directory::Directory;
use crate::port::Port;
use crate::process::{End, Process};
use crate::program;
use crate::wait::{PATIENCE, poll};

const PACKAGE: &str = "postgresql";
/// The user of clients; no password is needed on loopback.
const USER: &str = "tidegate";
/// Every server has a database of this name.
const DATABASE: &str = "postgres";
const ATTEMPTS_MAX: usize = 5;
const READY: &str = "database system is ready to accept connections";
/// The names of what is in the server's directory.
const DATA: &str = "data";
const LOG: &str = "log";

/// A `postgres` process on its own port, which ends when it is dropped.
pub struct PostgresServer {
    process: Process,
    port: Port,
    // Dropped last, when no process writes to it any more.
    directory: Directory,
}

impl PostgresServer {
    /// Creates an empty database, starts a server, and returns when it accepts connections.
    pub fn start() -> Self {
        let mut last_log = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match Self::try_start() {
                Ok(server) => return server,
                // Another program has taken the port meanwhile.
                Err(log) if log.contains("Address already in use") => last_log = log,
                Err(log) => panic!("postgres does not start:\n{log}"),
            }
        }
        panic!("{ATTEMPTS_MAX} ports were in use:\n{last_log}");
    }

    /// Starts it; the error is its log.
    fn try_start() -> Result<Self, String> {
        let (directory, port, account) = (Directory::new(), Port::claim(), Account::choose());
        account.own(directory.path());
        let data = directory.join(DATA);
        init_database(&data, account);
        let number = port.number().to_string();
        let arguments =
            ["-D", &data.to_string_lossy(), "-p", &number, "-h", "127.0.0.1"].map(str::to_owned);
        // No socket in a directory that is shared with other programs.
        let no_socket = ["-c", "unix_socket_directories="].map(str::to_owned);
        let arguments: Vec<&OsStr> = arguments.iter().chain(&no_socket).map(OsStr::new).collect();
        let postgres = program::find("postgres", PACKAGE);
        let process = Process::start_as(
            (account.privileges(), End::Quit),
            &postgres,
            &arguments,
            &directory.join(LOG),
        );
        let mut server = Self { process, port, directory };
        if server.is_ready() { Ok(server) } else { Err(server.log()) }
    }

    fn is_ready(&mut self) -> bool {
        let log = self.directory.join(LOG);
        let ready =
            poll(PATIENCE, || match (read(&log).contains(READY), self.process.is_running()) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            });
        ready == Some(true)
    }

    /// Returns its URL: `postgres://tidegate@127.0.0.1:port/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}/{DATABASE}", self.address())
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the directory of its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        read(&self.directory.join(LOG))
    }
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

/// Creates an empty database in a new directory.
fn init_database(data: &Path, account: Account) {
    let initdb = program::find("initdb", PACKAGE);
    let mut command = Command::new("setpriv");
    command.args(account.privileges()).arg(initdb).arg("--pgdata").arg(data);
    command.args(["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
    command.args(["--no-sync", "--no-instructions"]);
    // initdb changes to its working directory, which must be accessible to the unprivileged user.
    command.current_dir(data.parent().expect("it is in our temporary directory"));
    let output = command.output().expect("setpriv starts; it comes with Debian's util-linux");
    assert!(output.status.success(), "initdb fails:\n{}", String::from_utf8_lossy(&output.stderr));
}
