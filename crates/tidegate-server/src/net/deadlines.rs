//! Deadlines of connections, without a timer for each request.
//!
//! State     Each connection stores until when it may stay in its present state, in seconds of its worker's own count. Once a
//!           second the worker scans its connections and closes the overdue ones.
//! Cost      A request costs two relaxed memory accesses.
//! Rounding  Times are rounded up to seconds: a connection is closed up to a second late and never early.

use crate::config::Caps;
use crate::net::Wire;
use crate::sync::lock;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::AbortHandle;

/// What one connection is doing, and until when it may.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    wire: Wire,
    /// The worker's count of seconds.
    seconds: Arc<AtomicU32>,
    /// The second after which the connection is overdue.
    until: AtomicU32,
    /// Whether it waits for a request of which no byte has arrived.
    is_idle: AtomicBool,
    /// Requests that are being answered.
    requests: AtomicU32,
    /// Of these, requests that have arrived completely and after which no input is expected before the answer.
    held: AtomicU32,
    /// Whether the connection shuts itself down when the server drains.
    shuts_down_itself: AtomicBool,
    /// The second after which an unauthenticated peer is overdue.
    authenticate_by: AtomicU32,
    /// Whether the peer has shown no token or certificate, needed or not: a reload may make one needed.
    is_unauthenticated: AtomicBool,
    /// The connection's slot among the unauthenticated ones; dropping it frees the slot.
    slot: Mutex<Option<Slot>>,
    idle_seconds: u32,
    request_seconds: u32,
}

/// Something that is dropped when the peer authenticates or disconnects.
pub(super) type Slot = Box<dyn Debug + Send>;

impl ConnectionState {
    fn new(wire: Wire, seconds: Arc<AtomicU32>, caps: &Caps) -> Self {
        let until = seconds.load(Ordering::Relaxed) + in_seconds(caps.first_byte);
        Self {
            wire,
            seconds,
            until: AtomicU32::new(until),
            is_idle: AtomicBool::new(true),
            requests: AtomicU32::new(0),
            held: AtomicU32::new(0),
            shuts_down_itself: AtomicBool::new(false),
            authenticate_by: AtomicU32::new(u32::MAX),
            is_unauthenticated: AtomicBool::new(true),
            slot: Mutex::default(),
            idle_seconds: in_seconds(caps.idle),
            request_seconds: in_seconds(caps.request),
        }
    }

    /// Requires the peer to authenticate within this time.
    pub(super) fn require_authentication_within(&self, time: Duration) {
        let by = self.seconds.load(Ordering::Relaxed).saturating_add(in_seconds(time));
        self.authenticate_by.store(by, Ordering::Relaxed);
    }

    /// Keeps a slot until the peer authenticates or disconnects.
    pub(super) fn hold_slot(&self, slot: Slot) {
        *lock(&self.slot) = Some(slot);
    }

    /// Frees the slot.
    pub(super) fn release_slot(&self) {
        let slot = lock(&self.slot).take();
        // Dropped after the lock is released.
        drop(slot);
    }

    /// Returns whether the peer has shown no token or certificate, needed or not.
    #[inline]
    pub(super) fn is_unauthenticated(&self) -> bool {
        self.is_unauthenticated.load(Ordering::Relaxed)
    }

    /// The peer has shown a token or a certificate that is needed now, whether or not it was needed when the peer connected.
    pub(super) fn set_authenticated(&self) {
        if self.is_unauthenticated.swap(false, Ordering::Relaxed) {
            self.authenticate_by.store(u32::MAX, Ordering::Relaxed);
            self.release_slot();
        }
    }

    /// Returns whether the connection waits for nothing but the peer's next request.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed) && !self.is_answering()
    }

    /// The connection waits for input: the rest of a request if `has_part`, else the next request.
    #[inline]
    pub(super) fn await_input(&self, has_part: bool) {
        self.set_deadline(if has_part { self.request_seconds } else { self.idle_seconds });
        self.is_idle.store(!has_part, Ordering::Relaxed);
    }

    /// The server writes, and the peer has to read it in time.
    #[inline]
    pub(super) fn begin_write(&self) {
        self.set_deadline(self.request_seconds);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Input has arrived: the first bytes of a request begin the request's time.
    #[inline]
    pub(super) fn on_read(&self) {
        self.begin_request_time();
    }

    /// The server has tried to write. If the peer accepted it, the request counts as answered.
    #[inline]
    pub(super) fn on_write(&self, is_accepted: bool) {
        if is_accepted {
            self.await_input(false);
        } else {
            self.begin_request_time();
        }
    }

    #[inline]
    fn begin_request_time(&self) {
        if self.is_idle.swap(false, Ordering::Relaxed) {
            self.set_deadline(self.request_seconds);
        }
    }

    /// Returns the worker's present second.
    pub(super) fn second(&self) -> u32 {
        self.seconds.load(Ordering::Relaxed)
    }

    /// The connection shuts itself down when the server drains, so the worker need not close it.
    pub(super) fn set_shuts_down_itself(&self) {
        self.shuts_down_itself.store(true, Ordering::Relaxed);
    }

    /// Counts a request that is being answered until the guard is dropped.
    pub(super) fn begin_answer(self: &Arc<Self>) -> AnswerGuard {
        self.requests.fetch_add(1, Ordering::Relaxed);
        AnswerGuard(Arc::clone(self))
    }

    /// Suspends the deadline until the guard is dropped: a request has arrived completely, the peer's next input comes after
    /// its answer, and its rule may make it wait longer than a peer may take.
    pub(super) fn suspend_deadline(self: &Arc<Self>) -> SuspendedDeadline {
        self.held.fetch_add(1, Ordering::Relaxed);
        SuspendedDeadline(Arc::clone(self))
    }

    /// Returns whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the connection has taken longer than it may.
    ///
    /// A peer that waits for the server's answer is not overdue. A peer that has not authenticated in time is overdue whatever is
    /// being answered: a request with a token has authenticated its peer before it waits.
    fn is_overdue(&self, now: u32, must_authenticate: impl Fn(Wire) -> bool) -> bool {
        let is_waiting = self.is_idle.load(Ordering::Relaxed) && self.is_answering();
        let is_held = self.held.load(Ordering::Relaxed) > 0;
        let is_late = self.until.load(Ordering::Relaxed) < now && !is_waiting && !is_held;
        is_late || self.is_unauthenticated_too_long(now, must_authenticate)
    }

    /// Returns whether the time to authenticate has passed. If a reload has made it unnecessary, the deadline is dropped.
    fn is_unauthenticated_too_long(
        &self,
        now: u32,
        must_authenticate: impl Fn(Wire) -> bool,
    ) -> bool {
        let has_passed = self.authenticate_by.load(Ordering::Relaxed) < now;
        if has_passed && !must_authenticate(self.wire) {
            self.authenticate_by.store(u32::MAX, Ordering::Relaxed);
            return false;
        }
        has_passed
    }

    #[inline]
    fn set_deadline(&self, seconds: u32) {
        let now = self.seconds.load(Ordering::Relaxed);
        self.until.store(now.saturating_add(seconds), Ordering::Relaxed);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct AnswerGuard(Arc<ConnectionState>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that has arrived completely and waits for its answer. Dropping it begins the peer's time to read the answer.
#[derive(Debug)]
pub(super) struct SuspendedDeadline(Arc<ConnectionState>);

impl Drop for SuspendedDeadline {
    fn drop(&mut self) {
        self.0.set_deadline(self.0.request_seconds);
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rounds up to seconds. The worker's count may be about to go up, so a connection is overdue only when the count has passed
/// its deadline: never early, and at most a second late.
fn in_seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX / 2)
}

/// The open connections of one worker.
#[derive(Debug, Default)]
pub(super) struct Connections {
    seconds: Arc<AtomicU32>,
    last_id: AtomicU64,
    open: Mutex<HashMap<u64, Connection>>,
}

/// One connection's state, and the task to abort to close it.
type Connection = (Arc<ConnectionState>, Option<AbortHandle>);

impl Connections {
    /// Registers a new connection.
    pub(super) fn add(&self, wire: Wire, caps: &Caps) -> (u64, Arc<ConnectionState>) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(ConnectionState::new(wire, Arc::clone(&self.seconds), caps));
        self.open().insert(id, (Arc::clone(&state), None));
        (id, state)
    }

    /// Sets the handle that closes a connection.
    pub(super) fn set_abort_handle(&self, id: u64, handle: AbortHandle) {
        if let Some((_, current)) = self.open().get_mut(&id) {
            *current = Some(handle);
        }
    }

    pub(super) fn remove(&self, id: u64) {
        self.open().remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.open().len()
    }

    /// Counts seconds and closes overdue connections for as long as the worker runs. `must_authenticate` says whether a listener's
    /// peers must authenticate, under the present configuration.
    pub(super) async fn enforce_deadlines(&self, must_authenticate: impl Fn(Wire) -> bool) {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            let now = self.seconds.fetch_add(1, Ordering::Relaxed) + 1;
            self.close_if(|state| state.is_overdue(now, &must_authenticate));
        }
    }

    /// Closes idle connections that do not shut themselves down.
    pub(super) fn close_idle(&self) {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        self.close_if(|state| is(&state.is_idle) && !is(&state.shuts_down_itself));
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        self.close_if(|_| true);
    }

    fn close_if(&self, is_over: impl Fn(&ConnectionState) -> bool) {
        for (state, handle) in self.open().values() {
            if let Some(handle) = handle
                && is_over(state)
            {
                handle.abort();
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Connection>> {
        lock(&self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that must authenticate within a second, with a request that is never answered.
    fn connection_in_request() -> (Arc<ConnectionState>, AnswerGuard, SuspendedDeadline) {
        let state = Connections::default().add(Wire::Grpc, &Caps::default()).1;
        state.require_authentication_within(Duration::from_secs(1));
        let (answering, suspended) = (state.begin_answer(), state.suspend_deadline());
        (state, answering, suspended)
    }

    #[test]
    fn a_peer_that_has_not_authenticated_in_time_is_overdue_even_during_an_answer() {
        let (unauthenticated, _answering, _suspended) = connection_in_request();
        let (authenticated, _other_answering, _other_suspended) = connection_in_request();
        authenticated.set_authenticated();
        let is_overdue = |state: &ConnectionState, now| state.is_overdue(now, |_| true);
        assert!(!is_overdue(&unauthenticated, 1) && is_overdue(&unauthenticated, 2));
        assert!(
            !is_overdue(&authenticated, 1_000),
            "its request may wait as long as its rule says"
        );
    }

    #[test]
    fn a_peer_is_not_overdue_for_a_token_that_is_no_longer_needed() {
        let (state, _answering, _suspended) = connection_in_request();
        assert!(!state.is_overdue(2, |_| false));
        assert!(!state.is_overdue(3, |_| true), "a later reload does not bring the deadline back");
    }
}
