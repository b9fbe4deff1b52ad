//! Leaky bucket as a meter: the cost of each request flows in, the rate drains it, and a request that would make it
//! overflow is denied (A5).
//!
//! The free capacity of this bucket behaves like the tokens of a token bucket whose `burst` is `capacity`, so the
//! implementation is the token bucket's. The rule has its own name because many users know it under that name.
//!
//! Always   The level never exceeds `capacity` (seed flaw 5).
//! Spec     `spec/leaky.md`.

pub(crate) use super::token_bucket::TokenBucket as Leaky;
