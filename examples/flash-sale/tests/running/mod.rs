//! The real program as a service process.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A service process, killed on drop.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: SocketAddr,
    said: BufReader<ChildStdout>,
}

impl Service {
    /// Starts the service on a free port, and waits until it listens.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut said, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        said.read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(',').next());
        let address = address
            .unwrap_or_else(|| panic!("the first line has no address: {line:?}"))
            .parse()
            .unwrap();
        Self { child, address, said }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        assert!(self.child.try_wait().unwrap().is_none(), "the service has ended by itself");
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end, and returns whether it was successful, and the output since it listened.
    pub(crate) fn end(mut self) -> (bool, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The service has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
