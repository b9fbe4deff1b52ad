//! A permit as numbers, so that it can outlive the process that holds it.

use super::Fingerprint;

/// A permit of a [`Limiter`](crate::Limiter) as numbers; made by [`Permit::record`](crate::Permit::record).
///
/// ```
/// use tidegate::{Limiter, ManualClock, Span};
/// use tidegate::snapshot::Snapshot;
///
/// let (clock, rule) = (ManualClock::new(), "concurrency 1 lease 30s");
/// let limiter = Limiter::with_clock(rule.parse()?, clock.clone());
/// let record = limiter.try_acquire("alice").map(|permit| {
///     let record = permit.record().expect("it holds something");
///     permit.forget(); // the process ends meanwhile
///     record
/// })?;
/// let mut bytes = Vec::new();
/// Snapshot::write(&mut bytes, [("pool", &limiter)])?;
///
/// clock.advance(Span::from_secs(10));
/// let builder = Limiter::builder(rule.parse()?);
/// let limiter = Snapshot::read(&bytes)?.restore_with_clock("pool", builder, clock);
/// assert!(limiter.try_acquire("alice").is_err(), "it is still held");
/// let (permit, left) = limiter.reclaim(&record).expect("it is still held");
/// assert_eq!(left, Span::from_secs(20));
/// drop(permit);
/// assert!(limiter.try_acquire("alice").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitRecord {
    /// The key's fingerprint; `None` if the permit is in the shared overflow.
    pub(crate) key: Option<Fingerprint>,
    pub(crate) ticket: [u64; 2],
}

impl PermitRecord {
    /// Returns the record as numbers, to be written to a file.
    pub fn to_words(&self) -> [u64; 4] {
        let [number, since] = self.ticket;
        let (high, low) = self.key.map_or((0, 0), |key| (key.high, key.low));
        [high, low, number, since]
    }

    /// Recreates a record from the numbers that [`to_words`](Self::to_words) returned. Any other numbers reclaim nothing.
    pub fn from_words([high, low, number, since]: [u64; 4]) -> Self {
        // No fingerprint has a high half of zero.
        let key = (high != 0).then(|| Fingerprint::new(high, low));
        Self { key, ticket: [number, since] }
    }
}
