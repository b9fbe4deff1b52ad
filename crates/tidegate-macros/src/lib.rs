//! The attribute `#[limit]`: a function that does not run when its limit says no.
//!
//! Use it as `tidegate::limit`, with the feature `macros` of the crate `tidegate`.
//!
//! Always   The limits are asked before the body, and the body stays where it was written: `?`, `return`,
//!          borrows and `await` mean what they meant.
//! Always   What is wrong is said at compile time, at the words that are wrong. The rule is read by the
//!          same parser as at run time.

mod arguments;
mod expand;
mod function;
mod rule;

use proc_macro::TokenStream;

/// Limits how often, or how often at the same time, a function runs.
///
/// When the limit says no, the body does not run. The caller gets `Err(Denied)`, converted by `From`, or
/// what `else` says.
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
/// assert!(reset_password("bob").is_ok(), "bob has his own");
/// ```
///
/// | | |
/// |---|---|
/// | `"20/s burst 5"` | the rule, read when this is compiled |
/// | `by = expression` | instead of a rule: a `Gate` or `Limiter` that you have |
/// | `key = expression` | whom it counts; the arguments and `self` can be used. Without it, everybody together |
/// | `cost = expression` | what this call costs; 1 unless told |
/// | `wait = "1s"` | how long a call waits for its turn: with `await` in an `async fn`, with the thread elsewhere |
/// | `else = expression` | what is returned instead; or `\|denied\| expression`, to say when to come back |
///
/// Several attributes on one function are decided as one: a call that one of them denies costs nothing in the
/// others. A rule such as `concurrency 5` holds its permit until the function has returned, also when it panics
/// or its future is dropped. A generic function has one limit for all its types, and a method one for all its
/// values, unless `key` tells them apart.
#[proc_macro_attribute]
pub fn limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match expand::expand(arguments.into(), &item.into()) {
        Ok(tokens) => tokens.into(),
        Err(refusal) => refusal.into_tokens().into(),
    }
}
