//! One primary: its connections, and what happens when they fail.
//!
//! Invariant  A caller waits at most until its deadline, and not at all while the server is known to be down. It never
//!            connects: the reconnect task does.
//! Invariant  A request is sent once. Only a script that Redis has refused is sent again, once.
//! Bound      `Settings::in_flight_max` callers wait for an answer; further requests fail at once.

use super::breaker::Breaker;
use super::connection_slot::ConnectionSlot;
use super::deadline::Deadline;
use super::error::{RedisStoreError, Remedy};
use super::sentinel::Primary;
use super::settings::Settings;
use crate::script::Script;
use crate::sync::Mutex;
use redis::{Cmd, RedisError, Value};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// One primary.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) primary: Primary,
    pub(super) connections: Vec<ConnectionSlot>,
    pub(super) breaker: Breaker,
    pub(super) settings: Settings,
    /// Wakes the reconnect task.
    pub(super) trouble: Notify,
    /// Wakes callers that wait for the first connection.
    pub(super) ready: Notify,
    pub(super) why_down: Mutex<String>,
    next: AtomicUsize,
    in_flight: Semaphore,
    /// The longest deadline of any caller so far, in microseconds.
    longest_wait_us: AtomicU64,
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) deadline: Deadline,
}

/// The result of one attempt to run a script.
pub(super) enum CallResult {
    Answer(Value),
    /// Redis refused the script, and this can be done about it.
    Refused(Remedy, RedisStoreError),
    Failed(RedisStoreError),
}

impl From<CallResult> for Result<Value, RedisStoreError> {
    fn from(result: CallResult) -> Self {
        match result {
            CallResult::Answer(value) => Ok(value),
            CallResult::Refused(_, error) | CallResult::Failed(error) => Err(error),
        }
    }
}

impl Node {
    /// Creates a primary without connections, which [`reconnect`](super::reconnect) opens.
    pub(super) fn new(primary: Primary, settings: Settings) -> Self {
        Self {
            primary,
            connections: (0..settings.connections).map(|_| ConnectionSlot::default()).collect(),
            breaker: Breaker::default(),
            trouble: Notify::new(),
            ready: Notify::new(),
            why_down: Mutex::new("not connected yet".to_owned()),
            next: AtomicUsize::new(0),
            in_flight: Semaphore::new(settings.in_flight_max),
            longest_wait_us: AtomicU64::new(micros(settings.deadline)),
            settings,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.primary.address()
    }

    /// Returns how often the primary was replaced or restarted.
    pub(crate) fn changes(&self) -> u64 {
        self.primary.changes()
    }

    /// Returns whether requests are sent to this primary.
    pub(crate) fn is_up(&self) -> bool {
        !self.breaker.is_open() && self.connections.iter().any(ConnectionSlot::is_connected)
    }

    /// Returns why requests are not sent.
    pub(crate) fn why_down(&self) -> String {
        self.why_down.lock().clone()
    }

    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_micros(self.longest_wait_us.load(Ordering::Relaxed))
    }

    /// Waits until the primary is up, at most `wait_max`.
    pub(crate) async fn wait(&self, wait_max: Duration) {
        let up = async {
            loop {
                let ready = self.ready.notified();
                if self.is_up() {
                    return;
                }
                ready.await;
            }
        };
        // After a timeout the next request fails, and reports that the primary is down.
        let _ = tokio::time::timeout(wait_max, up).await;
    }

    pub(super) fn note_failure(&self, why: &str) {
        why.clone_into(&mut self.why_down.lock());
    }

    /// Runs a script by its hash, or by its text if the server does not know the hash.
    pub(super) async fn call(&self, call: &Call, is_asking: bool) -> CallResult {
        let wait_us = micros(call.deadline.within);
        // All threads share this word: writing it for every call would slow them down.
        if self.longest_wait_us.load(Ordering::Relaxed) < wait_us {
            self.longest_wait_us.fetch_max(wait_us, Ordering::Relaxed);
        }
        let by_hash = call.command("EVALSHA", call.script.hash());
        match self.send(&by_hash, call.deadline, is_asking).await {
            CallResult::Refused(Remedy::SendScript, _) => {
                let by_text = call.command("EVAL", call.script.text());
                self.send(&by_text, call.deadline, is_asking).await
            }
            result => result,
        }
    }

    /// Sends one command. With `is_asking`, the server is about to get the slot of the key.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        deadline: Deadline,
        is_asking: bool,
    ) -> CallResult {
        if deadline.time_left().is_zero() {
            // The caller waits no longer, so the request would be charged in vain. That is no failure of the server.
            let (address, waited) = (self.address(), deadline.within);
            return CallResult::Failed(RedisStoreError::TimedOut { address, waited });
        }
        if self.breaker.is_open() {
            let reason = format!("it is not asked until it answers again ({})", self.why_down());
            return CallResult::Failed(RedisStoreError::Down { address: self.address(), reason });
        }
        let Ok(_in_flight) = self.in_flight.try_acquire() else {
            let max = self.settings.in_flight_max;
            return CallResult::Failed(RedisStoreError::Overloaded {
                address: self.address(),
                max,
            });
        };
        let slots = &self.connections;
        let preferred =
            key_hash(command).unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let slots = (0..slots.len()).map(|step| &slots[(preferred + step) % slots.len()]);
        let Some((slot, mut connection)) = slots.into_iter().find_map(ConnectionSlot::connection)
        else {
            self.trouble.notify_one();
            let reason = self.why_down();
            return CallResult::Failed(RedisStoreError::Down { address: self.address(), reason });
        };
        let answer = async {
            if !is_asking {
                return connection.stream.send_packed_command(command).await;
            }
            let mut pipe = redis::pipe();
            pipe.cmd("ASKING").add_command(command.clone());
            let answers = connection.stream.send_packed_commands(&pipe, 1, 1).await?;
            answers.into_iter().next().ok_or_else(|| std::io::Error::other("no answer").into())
        };
        match tokio::time::timeout_at(deadline.ends, answer).await {
            Ok(Ok(value)) => match value.extract_error() {
                Ok(value) => {
                    self.breaker.succeed();
                    CallResult::Answer(value)
                }
                Err(error) => self.refused(&error),
            },
            Ok(Err(error)) if is_connection_gone(&error) => {
                slot.discard(connection.generation);
                CallResult::Failed(self.count_failure(RedisStoreError::of(&error, &self.address())))
            }
            Ok(Err(error)) => self.refused(&error),
            Err(_) => {
                let (address, waited) = (self.address(), deadline.within);
                CallResult::Failed(
                    self.count_failure(RedisStoreError::TimedOut { address, waited }),
                )
            }
        }
    }

    fn refused(&self, error: &RedisError) -> CallResult {
        let remedy = Remedy::of(error);
        let failure = RedisStoreError::of(error, &self.address());
        match remedy {
            Remedy::OpenBreaker => {
                self.count_failure(failure.clone());
            }
            Remedy::FindPrimary => {
                self.disconnect(&failure.to_string());
                self.trouble.notify_one();
            }
            _ => self.breaker.succeed(),
        }
        CallResult::Refused(remedy, failure)
    }

    /// Disconnects from a server that is no primary any more: requests wait until the primary is found.
    pub(super) fn disconnect(&self, why: &str) {
        self.note_failure(why);
        self.breaker.open();
        self.connections.iter().for_each(ConnectionSlot::close);
    }

    /// Counts a failure, and wakes the reconnect task.
    fn count_failure(&self, failure: RedisStoreError) -> RedisStoreError {
        self.note_failure(&failure.to_string());
        self.breaker.fail();
        self.trouble.notify_one();
        failure
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Hashes the key of a command: all requests about one key use one connection, so that Redis runs them in order.
fn key_hash(command: &Cmd) -> Option<usize> {
    let redis::Arg::Simple(key) = command.args_iter().nth(3)? else { return None };
    Some(
        key.iter()
            .fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))),
    )
}

/// Returns whether the error is not an answer of the server.
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
