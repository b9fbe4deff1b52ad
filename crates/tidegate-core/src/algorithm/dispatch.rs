//! The closed set of algorithms: one variant each, and the dispatch of every call to its algorithm.
//!
//! Always   The compiler reports every place that a new algorithm has to be added to. A state is used only with the
//!          algorithm that made it. Any other state is a bug, and is replaced by a fresh one.

use crate::algorithm::calendar::Calendar;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed::Fixed;
use crate::algorithm::leaky::Leaky;
use crate::algorithm::nginx::Nginx;
use crate::algorithm::queue::Queue;
use crate::algorithm::sliding::Sliding;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::smooth::Smooth;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::warmup::Warmup;
use crate::algorithm::{Algorithm, Usage, Window};
use crate::codec::packed::PackedWords;
use crate::decision::Decision;
use crate::time::Timestamp;
use alloc::vec::Vec;

/// Declares the algorithms, their states, and the dispatch.
macro_rules! each_algorithm {
    ($($name:ident: $stem:literal),+ $(,)?) => {
        #[derive(Clone, Debug)]
        pub(crate) enum Algorithms { $($name($name)),+ }

        #[derive(Clone, Debug)]
        pub(crate) enum States { $($name(<$name as Algorithm>::State)),+ }

        impl Algorithms {
            pub(crate) fn fresh(&self, birth: Timestamp) -> States {
                match self { $(Self::$name(a) => States::$name(a.fresh(birth))),+ }
            }

            pub(crate) fn decide(&self, state: &mut States, now: Timestamp, cost: u64) -> Decision {
                match (self, &mut *state) {
                    $((Self::$name(a), States::$name(s)) => a.decide(s, now, cost),)+
                    _ => {
                        *state = self.reset_mismatched(now);
                        self.decide(state, now, cost)
                    }
                }
            }

            pub(crate) fn peek(&self, state: &States, now: Timestamp, cost: u64) -> Decision {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.peek(s, now, cost),)+
                    _ => self.peek(&self.reset_mismatched(now), now, cost),
                }
            }

            pub(crate) fn refund(&self, state: &mut States, now: Timestamp, cost: u64) {
                match (self, &mut *state) {
                    $((Self::$name(a), States::$name(s)) => a.refund(s, now, cost),)+
                    _ => *state = self.reset_mismatched(now),
                }
            }

            pub(crate) fn usage(&self, state: &States, now: Timestamp) -> Usage {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.usage(s, now),)+
                    _ => self.usage(&self.reset_mismatched(now), now),
                }
            }

            pub(crate) fn inherit(&self, old: &Self, state: &States, now: Timestamp) -> States {
                match (self, old, state) {
                    $((Self::$name(a), Self::$name(old), States::$name(s)) => {
                        States::$name(a.inherit(old, s, now))
                    })+
                    _ => self.adopt(old.usage(state, now), now),
                }
            }

            pub(crate) fn adopt(&self, usage: Usage, now: Timestamp) -> States {
                match self { $(Self::$name(a) => States::$name(a.adopt(usage, now))),+ }
            }

            pub(crate) fn packed_words(&self) -> usize {
                match self { $(Self::$name(a) => a.packed_words()),+ }
            }

            #[inline]
            pub(crate) fn pack(&self, state: &States, epoch: Timestamp) -> Option<PackedWords> {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.pack(s, epoch),)+
                    _ => self.pack(&self.reset_mismatched(epoch), epoch),
                }
            }

            #[inline]
            pub(crate) fn unpack(&self, words: &PackedWords, epoch: Timestamp) -> States {
                match self { $(Self::$name(a) => States::$name(a.unpack(words, epoch))),+ }
            }

            /// Decides on a packed state, without a copy of it as [`States`].
            ///
            /// Returns `None`, and leaves the words as they are, if the new state does not fit into them.
            pub(crate) fn decide_packed(
                &self,
                words: &mut PackedWords,
                epoch: Timestamp,
                now: Timestamp,
                cost: u64,
            ) -> Option<Decision> {
                match self { $(Self::$name(a) => a.decide_packed(words, epoch, now, cost)),+ }
            }

            pub(crate) fn to_words(&self, state: &States) -> Vec<u64> {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.to_words(s),)+
                    _ => Vec::new(),
                }
            }

            pub(crate) fn read_words(&self, words: &[u64]) -> Option<States> {
                match self { $(Self::$name(a) => a.read_words(words).map(States::$name)),+ }
            }

            pub(crate) fn stem(&self) -> &'static str {
                match self { $(Self::$name(_) => $stem),+ }
            }

            pub(crate) fn lua_params(&self) -> Option<Vec<f64>> {
                match self { $(Self::$name(a) => a.lua_params()),+ }
            }

            pub(crate) fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
                match self { $(Self::$name(a) => a.lua_cost(cost)),+ }
            }

            pub(crate) fn state_to_lua(&self, state: &States) -> Option<Vec<f64>> {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.state_to_lua(s),)+
                    _ => None,
                }
            }

            pub(crate) fn state_from_lua(&self, numbers: &[f64]) -> Option<States> {
                match self { $(Self::$name(a) => a.state_from_lua(numbers).map(States::$name)),+ }
            }

            pub(crate) fn window(&self, state: &States, now: Timestamp) -> Option<Window> {
                match (self, state) {
                    $((Self::$name(a), States::$name(s)) => a.window(s, now),)+
                    _ => self.window(&self.reset_mismatched(now), now),
                }
            }
        }
    };
}

each_algorithm!(
    Calendar: "calendar",
    Concurrency: "concurrency",
    Fixed: "fixed",
    Leaky: "leaky",
    Nginx: "nginx",
    Queue: "queue",
    Sliding: "sliding",
    SlidingLog: "sliding_log",
    Smooth: "smooth",
    TokenBucket: "token_bucket",
    Warmup: "warmup",
);

impl Algorithms {
    /// Returns a fresh state to replace one that another algorithm made. The caller that passed it has a bug, but the
    /// service goes on.
    pub(crate) fn reset_mismatched(&self, now: Timestamp) -> States {
        debug_assert!(false, "this state was made by a limit with another algorithm");
        self.fresh(now)
    }
}
