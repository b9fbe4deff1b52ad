//! `#[limit]` on functions and methods of every kind (P2): the body runs exactly when the limit admits the call.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::Cell;
use std::fmt::Display;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Denied, Gate, Limiter, ManualClock, Retry, Span, Verdict, limit};

// Seed flaw 7: an aspect that writes the rejection and then still runs the method.
#[test]
fn a_denied_function_does_not_run() {
    static RUNS: AtomicU64 = AtomicU64::new(0);

    #[limit("3/h")]
    fn work() -> Result<(), Denied> {
        RUNS.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    let admitted = (0..10).filter(|_| work().is_ok()).count();
    assert_eq!((admitted, RUNS.load(Ordering::Relaxed)), (3, 3));
}

#[test]
fn a_denial_contains_the_time_to_retry() {
    #[limit("1/h")]
    fn work() -> Result<u32, Denied> {
        Ok(1)
    }

    assert_eq!(work(), Ok(1));
    let retry_after = work().unwrap_err().decision.retry_after().unwrap();
    assert!(retry_after > Span::from_secs(3_590) && retry_after <= Span::from_secs(3_600));
}

#[test]
fn a_denial_is_converted_into_the_functions_error() {
    #[derive(Debug, PartialEq)]
    enum Failure {
        Busy,
        Other(String),
    }

    impl From<Denied> for Failure {
        fn from(_: Denied) -> Self {
            Self::Busy
        }
    }

    #[limit("2/h")]
    fn own(fails: bool) -> Result<u32, Failure> {
        if fails {
            return Err(Failure::Other("early".into()));
        }
        let parsed: u32 = "7".parse().map_err(|_| Failure::Other("never".into()))?;
        Ok(parsed)
    }

    #[limit("1/h")]
    fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    type Alias<T> = Result<T, Failure>;

    #[limit("1/h")]
    fn alias() -> Alias<u32> {
        Ok(1)
    }

    assert_eq!(own(true), Err(Failure::Other("early".into())));
    assert_eq!(own(false), Ok(7));
    assert_eq!(own(false), Err(Failure::Busy));
    assert!(boxed().is_ok());
    assert!(boxed().unwrap_err().downcast_ref::<Denied>().is_some());
    assert_eq!([alias(), alias()], [Ok(1), Err(Failure::Busy)]);
}

// R3.
#[test]
fn a_plain_return_type_falls_back_to_a_value() {
    #[limit("1/h", else = "a default")]
    fn stock() -> &'static str {
        "3 left"
    }

    #[limit("1/h", else = |denied| format!("{name}, {denied}"))]
    fn greeting(name: &str) -> String {
        format!("hello {name}")
    }

    thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });

    #[limit("1/h", else = ())]
    fn silent() {
        RUNS.set(RUNS.get() + 1);
    }

    #[limit("1/h", else = vec![])]
    fn opaque() -> impl IntoIterator<Item = u32> {
        vec![1, 2]
    }

    assert_eq!([stock(), stock()], ["3 left", "a default"]);
    assert_eq!(greeting("tom"), "hello tom");
    assert!(greeting("tom").starts_with("tom, denied: retry after "));
    silent();
    silent();
    assert_eq!(RUNS.get(), 1);
    assert_eq!(opaque().into_iter().count() + opaque().into_iter().count(), 2);
}

#[test]
fn keys_of_different_types_have_different_limits() {
    #[limit("1/h", key = name)]
    fn by_name(name: &str) -> Result<(), Denied> {
        let _ = name;
        Ok(())
    }

    #[limit("1/h", key = number)]
    fn by_number(number: u64) -> Result<u64, Denied> {
        Ok(number)
    }

    #[limit("1/h", key = (tenant.as_str(), user % 10))]
    fn by_both(tenant: String, user: u64) -> Result<String, Denied> {
        Ok(format!("{tenant}/{user}"))
    }

    assert!(by_name("alice").is_ok() && by_name("bob").is_ok());
    assert!(by_name("alice").is_err());
    assert!(by_number(1).is_ok() && by_number(2).is_ok() && by_number(1).is_err());
    assert_eq!(by_both("acme".into(), 7).unwrap(), "acme/7");
    assert!(by_both("acme".into(), 17).is_err(), "the same key");
    assert!(by_both("other".into(), 7).is_ok());
}

#[test]
fn a_cost_is_any_integer_and_a_negative_one_is_never_admitted() {
    #[limit("10/h", cost = body.len())]
    fn send(body: &[u8]) -> Result<(), Denied> {
        let _ = body;
        Ok(())
    }

    #[limit("10/h", cost = 5)]
    fn dear() -> Result<(), Denied> {
        Ok(())
    }

    #[limit("10/h", cost = cost)]
    fn signed(cost: i32) -> Result<(), Denied> {
        let _ = cost;
        Ok(())
    }

    assert!(send(&[0; 7]).is_ok());
    assert!(send(&[0; 4]).is_err());
    assert!(send(&[0; 3]).is_ok(), "the denied call was not charged");
    assert_eq!((0..5).filter(|_| dear().is_ok()).count(), 2);
    let denied = signed(-1).unwrap_err();
    assert_eq!(denied.decision.verdict, Verdict::Deny(Retry::Never));
}

struct Account<C: tidegate::Clock> {
    name: String,
    gate: Gate<C>,
}

trait Pay {
    fn pay(&mut self, amount: u64) -> Result<u64, Denied>;

    #[limit("2/h", else = 0)]
    fn bonus(&self) -> u64 {
        100
    }
}

impl<C: tidegate::Clock> Account<C> {
    /// One for all accounts, counted by name.
    #[limit("1/h", key = self.name)]
    fn rename<'a>(&'a mut self, name: &str) -> Result<&'a str, Denied> {
        name.clone_into(&mut self.name);
        Ok(&self.name)
    }

    #[limit(by = self.gate)]
    fn look(&self) -> Result<&str, Denied> {
        Ok(&self.name)
    }

    #[limit("1/h")]
    fn open(name: &str, gate: Gate<C>) -> Result<Self, Denied>
    where
        C: Clone,
    {
        Ok(Self { name: name.to_owned(), gate })
    }
}

impl<C: tidegate::Clock> Pay for Account<C> {
    #[limit("1/h", key = &self.name)]
    fn pay(&mut self, amount: u64) -> Result<u64, Denied> {
        self.name.push('!');
        Ok(amount)
    }
}

#[test]
fn a_method_can_have_one_limit_a_limit_per_key_or_a_limiter_in_self() {
    let clock = ManualClock::new();
    let gate = || Gate::with_clock("1/s".parse().unwrap(), clock.clone());
    let mut alice = Account::open("alice", gate()).unwrap();
    assert!(Account::open("bob", gate()).is_err());
    let mut bob = Account { name: "bob".into(), gate: gate() };

    assert!(alice.look().is_ok() && bob.look().is_ok());
    assert!(alice.look().is_err());
    clock.advance(Span::from_secs(1));
    assert_eq!(alice.look(), Ok("alice"));

    assert_eq!(alice.rename("carol"), Ok("carol"));
    assert!(alice.rename("dave").is_ok(), "carol has not been renamed yet");
    assert_eq!(bob.rename("alice"), Ok("alice"));
    assert!(bob.rename("eve").is_err(), "there was an alice");

    assert_eq!(alice.pay(3), Ok(3));
    assert_eq!((alice.bonus(), bob.bonus(), alice.bonus()), (100, 100, 0));
}

#[test]
fn a_generic_function_has_one_limit_for_all_its_types() {
    #[limit("2/h")]
    fn print<T>(value: T) -> Result<String, Denied>
    where
        T: Display,
    {
        Ok(value.to_string())
    }

    assert_eq!(print(1).unwrap(), "1");
    assert_eq!(print("two").unwrap(), "two");
    assert!(print(3.0).is_err());
}

#[test]
fn each_recursive_call_is_charged() {
    #[limit("4/h")]
    fn count_down(from: u32) -> Result<u32, Denied> {
        if from == 0 { Ok(0) } else { Ok(count_down(from - 1)? + 1) }
    }

    assert_eq!(count_down(2), Ok(2));
    assert!(count_down(1).is_err(), "one was left");
}

#[test]
fn permits_are_held_while_the_function_runs_and_not_longer() {
    #[limit("concurrency 2")]
    fn nested(deep: u32) -> Result<u32, Denied> {
        assert_ne!(deep, 9, "told to panic");
        Ok(if deep == 0 { 0 } else { nested(deep - 1).unwrap_or(0) + 1 })
    }

    assert_eq!(nested(1), Ok(1));
    assert_eq!(nested(5), Ok(2), "the third in flight was denied");
    for _ in 0..3 {
        assert!(std::panic::catch_unwind(|| nested(9)).is_err());
    }
    assert_eq!(nested(5), Ok(2), "a panic has given its permit back");
}

static LOGINS: LazyLock<Limiter<ManualClock>> =
    LazyLock::new(|| Limiter::with_clock("3/15min sliding-log".parse().unwrap(), CLOCK.clone()));
static CLOCK: LazyLock<ManualClock> = LazyLock::new(ManualClock::new);

#[test]
fn functions_can_share_a_limiter() {
    #[limit(by = LOGINS, key = user)]
    fn by_password(user: &str) -> Result<(), Denied> {
        let _ = user;
        Ok(())
    }

    #[limit(by = LOGINS, key = user, cost = 2)]
    fn by_letter(user: &str) -> Result<(), Denied> {
        let _ = user;
        Ok(())
    }

    assert!(by_password("tom").is_ok() && by_letter("tom").is_ok() && by_password("tom").is_err());
    CLOCK.advance(Span::from_secs(15 * 60));
    assert!(by_letter("tom").is_ok());
    LOGINS.reset("tom");
    assert!(by_letter("tom").is_ok());
}

/// Documented.
#[limit("1/h")]
#[must_use = "names the user"]
#[doc(alias = "other")]
pub(crate) unsafe fn kept(pointer: *const u32) -> Result<u32, Denied> {
    #![expect(non_snake_case, reason = "an inner attribute, and what it is for")]
    let Value = 1;
    const ONE: u32 = 1;
    let _ = (pointer, Value);
    Ok(ONE)
}

#[test]
#[expect(unsafe_code, reason = "an unsafe function is called")]
fn unsafe_functions_and_other_attributes_stay_as_they_are() {
    let value = 5;
    // SAFETY: it does not look at it.
    let calls = unsafe { (kept(&raw const value), kept(&raw const value)) };
    assert!(calls.0.is_ok() && calls.1.is_err());
}

#[test]
fn a_function_that_a_macro_generates_can_be_limited() {
    macro_rules! endpoint {
        ($name:ident, $rule:literal, $body:block) => {
            #[limit($rule, else = 0)]
            fn $name() -> u32 $body
        };
    }
    endpoint!(first, "1/h", { 7 });
    endpoint!(second, "2/h", { 8 });
    assert_eq!((first(), first()), (7, 0));
    assert_eq!((second(), second(), second()), (8, 8, 0));
}

#[test]
fn generated_names_do_not_clash_with_the_users() {
    let denied = 3;

    #[limit("1/h", else = denied + ask)]
    fn shadowed(denied: u32, ask: u32) -> u32 {
        let __permit = denied;
        __permit + ask
    }

    assert_eq!((shadowed(1, 2), shadowed(denied, 4)), (3, 7));
}
