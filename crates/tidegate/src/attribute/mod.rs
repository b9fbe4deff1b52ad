//! The return value of a denied function with `#[limit]`. The functions that its expansion calls are in `expansion.rs`.

pub mod expansion;

use tidegate_core::Denied;

/// Return types of functions with [`#[limit]`](macro@crate::limit) that have no `else`.
///
/// Every `Result` whose error can be made from a [`Denied`] implements it. Implement it for your own type if one of its
/// values stands for a denial:
///
/// ```
/// use tidegate::{Denied, FromDenied, limit};
///
/// enum Reply {
///     Page(String),
///     TooMany { retry_after_s: u64 },
/// }
///
/// impl FromDenied for Reply {
///     fn from_denied(denied: Denied) -> Self {
///         let retry_after = denied.decision.retry_after().unwrap_or_default();
///         Self::TooMany { retry_after_s: retry_after.as_secs_ceil() }
///     }
/// }
///
/// #[limit("1/h")]
/// fn page() -> Reply {
///     Reply::Page("hello".into())
/// }
///
/// assert!(matches!(page(), Reply::Page(_)));
/// assert!(matches!(page(), Reply::TooMany { retry_after_s: 3_600 }));
/// ```
#[diagnostic::on_unimplemented(
    message = "`#[limit]` does not know what to return when the call is denied",
    label = "nothing says which `{Self}` a denial is",
    note = "add `else = …` to the attribute: the value to return instead",
    note = "or return a `Result` whose error implements `From<tidegate::Denied>`, or implement `tidegate::FromDenied`"
)]
pub trait FromDenied {
    /// Converts a denial into the return value.
    fn from_denied(denied: Denied) -> Self;
}

// Of an error that cannot be made of a denial the compiler would say only that, and not that there is `else`.
#[diagnostic::do_not_recommend]
impl<T, E: From<Denied>> FromDenied for Result<T, E> {
    fn from_denied(denied: Denied) -> Self {
        Err(E::from(denied))
    }
}
