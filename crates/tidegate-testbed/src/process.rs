//! A child process that ends when its value is dropped, and also if this process is killed.
//!
//! Always   Signals go to the id of a child that has not been waited for, which no other process can have.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use crate::wait::{PATIENCE, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How a process is ended, by us, or by the system when this process has died.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By SIGKILL.
    Kill,
    /// By SIGQUIT, and by SIGKILL if it does not end.
    Quit,
}

impl End {
    /// Returns the options of `setpriv` that end the process when this one dies.
    const fn setpriv_options(self) -> [&'static str; 2] {
        match self {
            Self::Kill => ["--pdeathsig", "KILL"],
            Self::Quit => ["--pdeathsig", "QUIT"],
        }
    }
}

pub(crate) struct Process {
    child: Child,
    is_paused: bool,
    end: End,
}

impl Process {
    /// Starts a program, whose output is appended to `log`.
    pub(crate) fn start(program: &Path, arguments: &[&OsStr], log: &Path) -> Self {
        Self::start_as((&[], End::Kill), program, arguments, log)
    }

    /// Starts a program as another user, given as options of `setpriv`, or with another way to end it.
    pub(crate) fn start_as(
        (privileges, end): (&[&str], End),
        program: &Path,
        arguments: &[&OsStr],
        log: &Path,
    ) -> Self {
        let log =
            File::options().create(true).append(true).open(log).expect("it is our child or file");
        let mut command = Command::new("setpriv");
        command.args(privileges).args(end.setpriv_options());
        command.arg(program).args(arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor is free")).stderr(log);
        let child = spawn(command).expect("setpriv starts; it comes with Debian's util-linux");
        Self { child, is_paused: false, end }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child or file").is_none()
    }

    /// Returns whether it runs and is not paused.
    pub(crate) fn is_awake(&mut self) -> bool {
        !self.is_paused && self.is_running()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child or file");
        self.child.wait().expect("it is our child or file");
    }

    /// Pauses it, and returns when it has stopped.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is our child or file");
        self.is_paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.is_paused = false;
    }

    fn signal(&mut self, signal: Signal) {
        assert!(self.is_running(), "the process has ended and cannot be sent {signal:?}");
        kill_process(self.pid(), signal).expect("it is our child or file");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.end == End::Quit && self.is_running() {
            self.signal(Signal::QUIT);
            poll(PATIENCE, || (!self.is_running()).then_some(()));
        }
        // It may have ended by itself before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Order {
    command: Command,
    done: Sender<io::Result<Child>>,
}

/// Spawns a child from a thread that lives as long as this process. Linux signals a child when the *thread* that spawned
/// it ends, and the thread of a test may end before the server that it started.
fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, taken) = channel::<Order>();
        thread::spawn(move || {
            for Order { mut command, done } in taken {
                // If the requester is gone, the child is dropped.
                let _ = done.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (done, spawned) = channel();
    let orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    orders.send(Order { command, done }).expect("its thread does not end");
    spawned.recv().expect("every order is answered")
}
