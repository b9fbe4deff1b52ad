//! The policy of a limit for requests that Redis does not decide.

use tidegate::Decision;

/// How a limit decides requests while Redis does not answer.
///
/// ```
/// use tidegate_redis::OnError;
///
/// assert_eq!(OnError::default(), OnError::Local { nodes: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// This node's share of the limit decides, in memory. If `nodes` is right, all nodes together admit no more than the limit;
    /// if k times as many nodes share it, k times as much.
    Local {
        /// How many nodes share the limit.
        nodes: u64,
    },
    /// Every request is admitted.
    Allow,
    /// Every request is denied.
    Deny,
}

impl Default for OnError {
    fn default() -> Self {
        Self::Local { nodes: 1 }
    }
}

/// A decision, and where it was made.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// let sourced = limiter.decide(b"alice", 1).await;
/// println!("{:?} by {:?}", sourced.decision.verdict, sourced.source);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcedDecision {
    /// The decision.
    pub decision: Decision,
    /// Where it was made.
    pub source: DecisionSource,
}

/// Where a decision was made.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::DecisionSource;
///
/// let is_without_redis = matches!(
///     limiter.decide(b"alice", 1).await.source,
///     DecisionSource::LocalShare | DecisionSource::Policy
/// );
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecisionSource {
    /// In Redis, for this request.
    Redis,
    /// On this node, from a lease.
    Lease,
    /// On this node, by a denial of Redis that still holds.
    CachedDenial,
    /// By this node's share of the limit: Redis does not answer, or does not yet know what the share admitted.
    LocalShare,
    /// By [`OnError::Allow`] or [`OnError::Deny`]: Redis does not answer.
    Policy,
    /// By the rule itself, which admits nothing (`0/s`): Redis is not asked.
    Rule,
}
