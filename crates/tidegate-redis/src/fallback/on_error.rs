//! What happens when Redis does not answer.

use tidegate::Decision;

/// What happens to requests that Redis does not decide.
///
/// ```
/// use tidegate_redis::OnError;
///
/// assert_eq!(OnError::default(), OnError::Local { nodes: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// This node's share of the limit decides, in memory. With the number of nodes that share the limit, they admit
    /// no more together than the limit says; with fewer, as many times as much as there are more nodes.
    Local {
        /// How many nodes share the limit.
        nodes: u64,
    },
    /// They pass.
    Allow,
    /// They do not.
    Deny,
}

impl Default for OnError {
    fn default() -> Self {
        Self::Local { nodes: 1 }
    }
}

/// A decision, and whose it is.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// let told = limiter.decide(b"alice", 1).await;
/// println!("{:?} by {:?}", told.decision.verdict, told.source);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told {
    /// The decision.
    pub decision: Decision,
    /// Whose it is.
    pub source: Source,
}

/// Whose decision it is.
///
/// ```
/// assert_ne!(tidegate_redis::Source::Shared, tidegate_redis::Source::Local);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Redis's, just now.
    Shared,
    /// This node's, of what Redis has lent it.
    Leased,
    /// Redis's, a moment ago: a denial that still holds.
    Remembered,
    /// This node's share of the limit: Redis does not answer, or does not know yet what was admitted without it.
    Local,
    /// Nobody's: Redis did not answer, and the limit says what then.
    Policy,
    /// The rule's own: it admits nothing (`0/s`), so Redis is not asked.
    Rule,
}
