//! One primary: its connections, and what is done when they fail.
//!
//! Always   A caller waits for the deadline at the longest, and not at all when it is known that nobody answers.
//!          A caller never connects: a keeper does, on its own account, in growing and random steps.
//!          So many callers wait at most; more are refused at once.
//!          A request is sent once. Only what Redis has refused is asked again, and once.

use super::breaker::Breaker;
use super::connection_slot::Lane;
use super::error::{Remedy, StoreError};
use super::reconnect;
use super::sentinel::Primary;
use crate::connection::Settings;
use crate::script::Script;
use redis::{Cmd, RedisError, Value};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// One primary.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) primary: Primary,
    pub(super) lanes: Vec<Lane>,
    pub(super) breaker: Breaker,
    pub(super) settings: Settings,
    /// Wakes the keeper.
    pub(super) trouble: Notify,
    /// Wakes who waits for the first connection.
    pub(super) ready: Notify,
    pub(super) why_down: Mutex<String>,
    next: AtomicUsize,
    in_flight: Semaphore,
    /// The longest that anybody has been willing to wait, in microseconds.
    longest_wait_us: AtomicU64,
}

/// A script and what it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) deadline: Deadline,
}

/// Until when an answer is waited for, whatever it takes: one for all steps of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    within: Duration,
    ends: Instant,
}

impl From<Duration> for Deadline {
    fn from(within: Duration) -> Self {
        Self { within, ends: Instant::now() + within }
    }
}

impl Deadline {
    pub(super) fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// What comes of it, if it comes in time.
    pub(crate) async fn cut<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::time::timeout_at(self.ends, future).await.ok()
    }
}

/// An answer, or what can be done instead.
pub(super) enum Outcome {
    Answer(Value),
    Remedy(Remedy, StoreError),
    Failure(StoreError),
}

impl Node {
    /// A primary, and somebody who keeps its connections.
    pub(super) fn new(primary: Primary, settings: Settings) -> Arc<Self> {
        let node = Arc::new(Self {
            primary,
            lanes: (0..settings.connections).map(|_| Lane::default()).collect(),
            breaker: Breaker::default(),
            trouble: Notify::new(),
            ready: Notify::new(),
            why_down: Mutex::new("not connected yet".to_owned()),
            next: AtomicUsize::new(0),
            in_flight: Semaphore::new(settings.in_flight_max),
            longest_wait_us: AtomicU64::new(micros(settings.deadline)),
            settings,
        });
        reconnect::start(&node);
        node
    }

    pub(crate) fn address(&self) -> String {
        self.primary.address()
    }

    /// How often it has been another server than before, or another run of it.
    pub(crate) fn changes(&self) -> u64 {
        self.primary.changes()
    }

    /// Whether requests are sent to it.
    pub(crate) fn is_up(&self) -> bool {
        !self.breaker.is_open() && self.lanes.iter().any(Lane::is_connected)
    }

    /// Why not.
    pub(crate) fn why_down(&self) -> String {
        self.why_down.lock().expect("nobody panics with it").clone()
    }

    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_micros(self.longest_wait_us.load(Ordering::Relaxed))
    }

    /// Waits until it is up, as long as somebody is willing to.
    pub(crate) async fn wait(&self, patience: Duration) {
        let up = async {
            loop {
                let ready = self.ready.notified();
                if self.is_up() {
                    return;
                }
                ready.await;
            }
        };
        // Who has waited long enough finds it down, and says so.
        let _ = tokio::time::timeout(patience, up).await;
    }

    pub(super) fn failed(&self, why: &str) {
        why.clone_into(&mut self.why_down.lock().expect("nobody panics with it"));
    }

    /// Runs a script by its hash; the text goes along if the server does not know it.
    pub(super) async fn call(&self, call: &Call, is_asking: bool) -> Outcome {
        let wait_us = micros(call.deadline.within);
        // A write for every call would be shared by all threads.
        if self.longest_wait_us.load(Ordering::Relaxed) < wait_us {
            self.longest_wait_us.fetch_max(wait_us, Ordering::Relaxed);
        }
        let by_hash = call.command("EVALSHA", call.script.hash());
        match self.send(&by_hash, call.deadline, is_asking).await {
            Outcome::Remedy(Remedy::SendScript, _) => {
                let by_text = call.command("EVAL", call.script.text());
                self.send(&by_text, call.deadline, is_asking).await
            }
            outcome => outcome,
        }
    }

    /// Sends one command. `is_asking`: to a server that is about to get the slot.
    pub(super) async fn send(&self, command: &Cmd, deadline: Deadline, is_asking: bool) -> Outcome {
        if deadline.left().is_zero() {
            // Nobody waits for it any more: it would be charged for nothing. The server has no part in that.
            let (address, waited) = (self.address(), deadline.within);
            return Outcome::Failure(StoreError::TimedOut { address, waited });
        }
        if self.breaker.is_open() {
            let reason = format!("it is left alone for a moment ({})", self.why_down());
            return Outcome::Failure(StoreError::Down { address: self.address(), reason });
        }
        let Ok(_place) = self.in_flight.try_acquire() else {
            let max = self.settings.in_flight_max;
            return Outcome::Failure(StoreError::Overloaded { address: self.address(), max });
        };
        let turn = turn_of(command).unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let lanes = (0..self.lanes.len()).map(|step| &self.lanes[(turn + step) % self.lanes.len()]);
        let Some((lane, mut connection)) = lanes.into_iter().find_map(Lane::connection) else {
            self.trouble.notify_one();
            let reason = self.why_down();
            return Outcome::Failure(StoreError::Down { address: self.address(), reason });
        };
        let answer = async {
            if !is_asking {
                return connection.one.send_packed_command(command).await;
            }
            let mut pipe = redis::pipe();
            pipe.cmd("ASKING").add_command(command.clone());
            let answers = connection.one.send_packed_commands(&pipe, 1, 1).await?;
            answers.into_iter().next().ok_or_else(|| std::io::Error::other("no answer").into())
        };
        match tokio::time::timeout_at(deadline.ends, answer).await {
            Ok(Ok(value)) => match value.extract_error() {
                Ok(value) => {
                    self.breaker.succeed();
                    Outcome::Answer(value)
                }
                Err(error) => self.refused(&error),
            },
            Ok(Err(error)) if is_connection_gone(&error) => {
                lane.lose(connection.number);
                Outcome::Failure(self.lost(StoreError::of(&error, &self.address())))
            }
            Ok(Err(error)) => self.refused(&error),
            Err(_) => {
                let (address, waited) = (self.address(), deadline.within);
                Outcome::Failure(self.lost(StoreError::TimedOut { address, waited }))
            }
        }
    }

    fn refused(&self, error: &RedisError) -> Outcome {
        let remedy = Remedy::of(error);
        let failure = StoreError::of(error, &self.address());
        match remedy {
            Remedy::Rest => {
                self.lost(failure.clone());
            }
            Remedy::FindPrimary => {
                self.leave(&failure.to_string());
                self.trouble.notify_one();
            }
            _ => self.breaker.succeed(),
        }
        Outcome::Remedy(remedy, failure)
    }

    /// It is no primary any more: nothing is sent to it until a primary has been found.
    pub(super) fn leave(&self, why: &str) {
        self.failed(why);
        self.breaker.open();
        self.lanes.iter().for_each(Lane::close);
    }

    /// Counts a failure, and has the keeper look after it.
    fn lost(&self, failure: StoreError) -> StoreError {
        self.failed(&failure.to_string());
        self.breaker.fail();
        self.trouble.notify_one();
        failure
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// All about one key goes one way, so that who asks twice in a row is answered in that order.
fn turn_of(command: &Cmd) -> Option<usize> {
    let redis::Arg::Simple(key) = command.args_iter().nth(3)? else { return None };
    Some(
        key.iter()
            .fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))),
    )
}

/// Not an answer, not even a bad one.
fn is_connection_gone(error: &RedisError) -> bool {
    use redis::ErrorKind;
    let is_answer = matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
    );
    !is_answer
}

impl Call {
    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            command.arg(part.as_slice());
        }
        command
    }
}
