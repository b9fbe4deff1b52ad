//! The attribute `#[limit]`: a function that does not run if its limit denies the call.
//!
//! Use it as `tidegate::limit`, with the feature `macros` of the crate `tidegate`.
//!
//! Always   The limits are decided before the body, and the body stays where it was written: `?`, `return`, borrows and
//!          `await` keep their meaning.
//! Always   Errors are reported at compile time, at the wrong words. The rule is parsed by the same parser as at run time.

mod arguments;
mod expand;
mod function;
mod rule;

use proc_macro::TokenStream;

/// Limits the rate or the concurrency of calls of a function.
///
/// If the limit denies a call, the body does not run. The caller gets `Err(Denied)`, converted by `From`, or the value of
/// `else`.
///
/// ```
/// use tidegate::{Denied, limit};
///
/// #[limit("5/min", key = user)]
/// fn reset_password(user: &str) -> Result<&'static str, Denied> {
///     Ok("sent")
/// }
///
/// for _ in 0..5 {
///     assert_eq!(reset_password("alice"), Ok("sent"));
/// }
/// assert!(reset_password("alice").is_err());
/// assert!(reset_password("bob").is_ok(), "each key has its own limit");
/// ```
///
/// | | |
/// |---|---|
/// | `"20/s burst 5"` | the rule, parsed at compile time |
/// | `by = expression` | instead of a rule: an existing `Gate` or `Limiter` |
/// | `key = expression` | the key, an expression of the arguments and `self`. Without it, all calls are counted together |
/// | `cost = expression` | the cost of the call; default 1 |
/// | `wait = "1s"` | the longest wait for a turn: an `await` in an `async fn`, else the thread blocks |
/// | `else = expression` | the value to return after a denial; or `\|denied\| expression`, to include the time to retry |
///
/// Several attributes on one function are decided together: a call that one of them denies is not charged by the others. A
/// rule such as `concurrency 5` holds its permit until the function has returned, panicked, or its future was dropped. A
/// generic function has one limit for all its types, and a method one for all values of `self`, unless `key` distinguishes
/// them.
#[proc_macro_attribute]
pub fn limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match expand::expand(arguments.into(), &item.into()) {
        Ok(tokens) => tokens.into(),
        Err(refusal) => refusal.into_tokens().into(),
    }
}
