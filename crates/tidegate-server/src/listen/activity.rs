//! How long a peer may take, without a timer for each of its requests.
//!
//! Always   A connection says until when it may be as it is, in seconds of its worker's own count. Once a
//!          second the worker looks through its connections and ends those that are overdue. A request costs
//!          two plain memory accesses for it.

use super::Wire;
use super::strangers::Place;
use super::wakeful::Wakeful;
use crate::config::Caps;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::AbortHandle;

/// What one connection is doing, and for how long it may.
#[derive(Debug)]
pub struct Activity {
    wire: Wire,
    wakeful: Arc<Wakeful>,
    seconds: Arc<AtomicU32>,
    until: AtomicU32,
    /// Whether it waits for a request of which nothing has come yet.
    is_idle: AtomicBool,
    /// Requests that are being answered.
    requests: AtomicU32,
    /// Of these, such that have come whole and after which nothing is expected before they are answered.
    held: AtomicU32,
    /// Whether it leaves by itself when it is time to go.
    leaves: AtomicBool,
    /// Until when the peer must have shown who it is.
    known_by: AtomicU32,
    /// Whether the peer has not shown who it is, needed or not: a reload may make it needed.
    is_unknown: AtomicBool,
    /// Its place among those that are counted, or may have to make room.
    place: Mutex<Option<Place>>,
    idle: u32,
    request: u32,
}

/// A request that is being answered, until it is dropped.
#[derive(Debug)]
pub(super) struct Answering(Arc<Activity>);

impl Activity {
    fn new(wire: Wire, wakeful: Arc<Wakeful>, seconds: Arc<AtomicU32>, caps: &Caps) -> Self {
        let until = AtomicU32::new(seconds.load(Ordering::Relaxed) + whole(caps.first_byte));
        let (idle, request) = (whole(caps.idle), whole(caps.request));
        let (requests, held) = (AtomicU32::new(0), AtomicU32::new(0));
        let (is_idle, leaves) = (AtomicBool::new(true), AtomicBool::new(false));
        Self {
            wire,
            wakeful,
            seconds,
            until,
            is_idle,
            requests,
            held,
            leaves,
            known_by: AtomicU32::new(u32::MAX),
            is_unknown: AtomicBool::new(true),
            place: Mutex::default(),
            idle,
            request,
        }
    }

    /// The peer must show who it is within this time.
    pub(super) fn must_be_known_within(&self, time: Duration) {
        let by = self.seconds.load(Ordering::Relaxed).saturating_add(whole(time));
        self.known_by.store(by, Ordering::Relaxed);
    }

    /// It has a place, until the peer is known or leaves.
    pub(super) fn takes(&self, place: Place) {
        *self.place.lock().expect("nobody panics with it") = Some(place);
    }

    /// Whether the peer has not shown who it is, needed or not.
    #[inline]
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown.load(Ordering::Relaxed)
    }

    /// The peer has shown who it is: a token or a certificate that is needed now, whether or not it was when the peer came.
    pub(crate) fn is_known(&self) {
        if self.is_unknown.swap(false, Ordering::Relaxed) {
            self.known_by.store(u32::MAX, Ordering::Relaxed);
            self.gives_up_place();
        }
    }

    /// The peer is known, or has left.
    pub(super) fn gives_up_place(&self) {
        let place = self.place.lock().expect("nobody panics with it").take();
        // Not under the lock.
        drop(place);
    }

    /// Whether the connection waits for nothing but what the peer says next.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed) && !self.is_answering()
    }

    /// It waits for what the peer says next, of which a part may have come.
    #[inline]
    pub fn is_reading(&self, has_part: bool) {
        self.may_take(if has_part { self.request } else { self.idle });
        self.is_idle.store(!has_part, Ordering::Relaxed);
    }

    /// It sends, and the peer has to take it.
    #[inline]
    pub fn is_writing(&self) {
        self.may_take(self.request);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Something has come: if it is the first of a request, the time of the request begins.
    #[inline]
    pub(crate) fn has_read(&self) {
        self.count_read();
        if self.is_idle.swap(false, Ordering::Relaxed) {
            self.may_take(self.request);
        }
    }

    /// Counts that the worker has been asked, whatever it was.
    #[inline]
    pub(super) fn count_read(&self) {
        self.wakeful.has_read();
    }

    /// Which second of its worker's own count it is.
    pub(super) fn second(&self) -> u32 {
        self.seconds.load(Ordering::Relaxed)
    }

    /// Something was to be sent. If it was taken the request is answered, as far as can be seen from here.
    #[inline]
    pub(super) fn has_written(&self, is_taken: bool) {
        if is_taken {
            self.is_reading(false);
        } else if self.is_idle.swap(false, Ordering::Relaxed) {
            self.may_take(self.request);
        }
    }

    /// It sends what the peer does not take; if it was not said before, its time begins.
    pub(super) fn is_stalled(&self) {
        self.may_take(self.request);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// It says goodbye when it is time to go, and need not be told.
    pub(super) fn leaves_by_itself(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// A request has come, and will be answered.
    pub(super) fn answers(self: &Arc<Self>) -> Answering {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// A request has come whole, and what follows on this connection comes after its answer: a rule may make it wait for
    /// longer than a peer may take.
    pub(super) fn holds(self: &Arc<Self>) -> Holding {
        self.held.fetch_add(1, Ordering::Relaxed);
        Holding(Arc::clone(self))
    }

    /// Whether anybody waits for an answer.
    pub(super) fn is_answering(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether it has taken longer than it may. A peer that waits for our answer is not idle, but a peer that has not shown who it
    /// is in time is overdue whatever is being answered: a request that its token admits has made it known before it waits.
    fn is_overdue(&self, now: u32, must_show: impl Fn(Wire) -> bool) -> bool {
        let is_waiting = self.is_idle.load(Ordering::Relaxed) && self.is_answering();
        let is_held = self.held.load(Ordering::Relaxed) > 0;
        let is_late = self.until.load(Ordering::Relaxed) < now && !is_waiting && !is_held;
        is_late || self.is_unknown_too_long(now, must_show)
    }

    /// Whether the time to show who it is has passed. Where a reload has made it unnecessary, the deadline is dropped.
    fn is_unknown_too_long(&self, now: u32, must_show: impl Fn(Wire) -> bool) -> bool {
        let has_passed = self.known_by.load(Ordering::Relaxed) < now;
        if has_passed && !must_show(self.wire) {
            self.known_by.store(u32::MAX, Ordering::Relaxed);
            return false;
        }
        has_passed
    }

    #[inline]
    fn may_take(&self, seconds: u32) {
        let now = self.seconds.load(Ordering::Relaxed);
        self.until.store(now.saturating_add(seconds), Ordering::Relaxed);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that has come whole, until its answer is there: dropped then, and from then on the peer has as much time
/// as for any answer.
#[derive(Debug)]
pub(super) struct Holding(Arc<Activity>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.may_take(self.0.request);
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rounded up to seconds. As the count may be about to go up, one is overdue only when it has gone beyond:
/// never before the time, and at most a second after it.
fn whole(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX / 2)
}

/// What it does, and how it can be ended.
type Peer = (Arc<Activity>, Option<AbortHandle>);

/// The connections of one worker.
#[derive(Debug)]
pub(super) struct Peers {
    wakeful: Arc<Wakeful>,
    seconds: Arc<AtomicU32>,
    numbers: AtomicU64,
    here: Mutex<HashMap<u64, Peer>>,
}

impl Peers {
    pub(super) fn new(wakeful: Arc<Wakeful>) -> Self {
        Self {
            wakeful,
            seconds: Arc::default(),
            numbers: AtomicU64::new(0),
            here: Mutex::default(),
        }
    }

    /// A peer has come.
    pub(super) fn enter(&self, wire: Wire, caps: &Caps) -> (u64, Arc<Activity>) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (wakeful, seconds) = (Arc::clone(&self.wakeful), Arc::clone(&self.seconds));
        let activity = Activity::new(wire, wakeful, seconds, caps);
        let activity = Arc::new(activity);
        let mut peers = self.here.lock().expect("nobody panics with it");
        peers.insert(number, (Arc::clone(&activity), None));
        (number, activity)
    }

    /// It can be ended by this from now on.
    pub(super) fn handle(&self, number: u64, handle: AbortHandle) {
        let mut peers = self.here.lock().expect("nobody panics with it");
        if let Some((_, kept)) = peers.get_mut(&number) {
            *kept = Some(handle);
        }
    }

    pub(super) fn leave(&self, number: u64) {
        self.here.lock().expect("nobody panics with it").remove(&number);
    }

    pub(super) fn len(&self) -> usize {
        self.here.lock().expect("nobody panics with it").len()
    }

    /// Counts seconds and ends connections that are overdue, for as long as the worker lives. `must_show` says whether a peer of a
    /// listener has to show who it is, as of now.
    pub(super) async fn watch(&self, must_show: impl Fn(Wire) -> bool) {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            let now = self.seconds.fetch_add(1, Ordering::Relaxed) + 1;
            self.end(|activity| activity.is_overdue(now, &must_show));
        }
    }

    /// Ends those who wait for nothing in particular, unless they leave by themselves.
    pub(super) fn end_idle(&self) {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        self.end(|activity| is(&activity.is_idle) && !is(&activity.leaves));
    }

    /// Ends all.
    pub(super) fn end_all(&self) {
        self.end(|_| true);
    }

    fn end(&self, is_over: impl Fn(&Activity) -> bool) {
        let peers = self.here.lock().expect("nobody panics with it");
        for (activity, handle) in peers.values() {
            if let Some(handle) = handle
                && is_over(activity)
            {
                handle.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::Span;

    /// A connection that must show who it is within a second, while requests of it are being answered for ever.
    fn answered_for_ever() -> (Arc<Activity>, Answering, Holding) {
        let peers = Peers::new(Arc::new(Wakeful::new(Span::ZERO)));
        let activity = peers.enter(Wire::Grpc, &Caps::default()).1;
        activity.must_be_known_within(Duration::from_secs(1));
        let (answering, holding) = (activity.answers(), activity.holds());
        (activity, answering, holding)
    }

    #[test]
    fn a_peer_that_has_shown_no_token_in_time_is_overdue_whatever_is_being_answered() {
        let (stranger, _answering, _holding) = answered_for_ever();
        let (known, _answers, _holds) = answered_for_ever();
        known.is_known();
        let is_overdue = |activity: &Activity, now| activity.is_overdue(now, |_| true);
        assert!(!is_overdue(&stranger, 1) && is_overdue(&stranger, 2));
        assert!(!is_overdue(&known, 1_000), "its request may wait for as long as it takes");
    }

    #[test]
    fn nobody_is_overdue_for_a_token_that_is_not_needed_any_more() {
        let (activity, _answering, _holding) = answered_for_ever();
        assert!(!activity.is_overdue(2, |_| false));
        assert!(!activity.is_overdue(3, |_| true), "the next reload leaves it alone");
    }
}
