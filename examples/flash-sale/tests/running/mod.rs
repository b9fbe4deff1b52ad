//! The program `flash-sale serve`, started as a process.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running service, which is killed when this is dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: SocketAddr,
    stdout: BufReader<ChildStdout>,
}

impl Service {
    /// Starts the service on a free port, and waits until it listens.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        stdout.read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).parse().unwrap();
        Self { child, address, stdout }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        assert!(self.child.try_wait().unwrap().is_none(), "the service has ended by itself");
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end. Returns whether it was successful, and the output since the start.
    pub(crate) fn end(mut self) -> (bool, String) {
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).unwrap();
        (self.child.wait().unwrap().success(), output)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The service has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
