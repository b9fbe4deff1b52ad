//! A process that is ended with its value, and also if we are killed.
//!
//! Always   Signals go to the process id of a child that has not been waited for, which nobody else can have.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use crate::patience::{PATIENCE, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How a process is ended, by us, or by the system when we are gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At once (SIGKILL).
    Kill,
    /// It is told to go (SIGQUIT), and killed if it does not.
    Quit,
}

impl End {
    /// What `setpriv` is told.
    const fn with_us(self) -> [&'static str; 2] {
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
    /// What it says goes to the end of `log`.
    pub(crate) fn start(program: &Path, arguments: &[&OsStr], log: &Path) -> Self {
        Self::start_as((&[], End::Kill), program, arguments, log)
    }

    /// The same of a process that is to be somebody else's, in the words of `setpriv`, or to be ended in another way.
    pub(crate) fn start_as(
        (privileges, end): (&[&str], End),
        program: &Path,
        arguments: &[&OsStr],
        log: &Path,
    ) -> Self {
        let log = File::options().create(true).append(true).open(log).expect("it is ours");
        let mut command = Command::new("setpriv");
        command.args(privileges).args(end.with_us());
        command.arg(program).args(arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("there are descriptors")).stderr(log);
        let child = spawn(command).expect("setpriv starts; it comes with Debian's util-linux");
        Self { child, is_paused: false, end }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Runs, and is not paused.
    pub(crate) fn is_awake(&mut self) -> bool {
        !self.is_paused && self.is_running()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Stopped it is when this returns, and not merely told to stop.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is ours");
        self.is_paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.is_paused = false;
    }

    fn signal(&mut self, signal: Signal) {
        assert!(self.is_running(), "a process that has ended is sent {signal:?}");
        kill_process(self.pid(), signal).expect("it is ours");
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
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Order {
    command: Command,
    done: Sender<io::Result<Child>>,
}

/// Linux means the thread when it says that the parent has died, and the thread of a test may end long before the
/// server does that it has started. So one thread starts everything, and it ends only with the process.
fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, taken) = channel::<Order>();
        thread::spawn(move || {
            for Order { mut command, done } in taken {
                // Whoever does not wait for the child any more drops it.
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
