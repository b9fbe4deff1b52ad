//! The process-wide limiter against its peers, side by side in one run.
//!
//! Tidegate and each peer take turns, round after round, so that a machine that slows down slows all of them. The
//! result is the median of the ratios within a round. Run it with `cargo xtask bench --bench versus`;
//! `docs/benchmarks.md` has the targets.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tidegate::Gate;
use tidegate::clock::CachedClock;
use tidegate_bench::clock::now;
use tidegate_bench::ratio::{Ratio, median};

/// Number of turns of each limiter.
const ROUNDS: usize = 31;
/// Decisions in a turn, on each thread.
const DECISIONS: u32 = 200_000;

fn main() {
    // `cargo bench` passes `--bench`. `cargo test --benches` passes `--test`, which must not measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    for path in [Path::Allowed, Path::Denied] {
        for threads in [1, 2] {
            compare(path, threads);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Path {
    Allowed,
    Denied,
}

impl Path {
    fn rule(self) -> &'static str {
        match self {
            Self::Allowed => "1000000000/s",
            Self::Denied => "1/h",
        }
    }
}

/// Makes this many decisions, and returns how many requests were admitted.
type Decide = Arc<dyn Fn(u32) -> u32 + Send + Sync>;

struct Subject {
    name: &'static str,
    decide: Decide,
    /// The maximum ratio of its time to governor's.
    target: Option<f64>,
}

/// Calls the closure repeatedly, and returns how often it returned true, so that no call is optimised away.
fn repeat(decide: impl Fn() -> bool + Send + Sync + 'static) -> Decide {
    Arc::new(move |times| {
        let mut admitted = 0;
        for _ in 0..times {
            admitted += u32::from(black_box(decide()));
        }
        admitted
    })
}

fn subjects(path: Path, threads: usize) -> Vec<Subject> {
    let gate = Gate::new(path.rule().parse().expect("a good rule"));
    let clock = CachedClock::every(Duration::from_millis(1));
    let cached = Gate::with_clock(path.rule().parse().expect("a good rule"), clock);
    let contended = threads > 1 && path == Path::Allowed;
    let share = if contended { 0.6 } else { 1.05 };
    let mut subjects = vec![
        Subject {
            name: "tidegate",
            decide: repeat(move || gate.check().is_allow()),
            target: Some(share),
        },
        Subject {
            name: "tidegate, cached clock",
            decide: repeat(move || cached.check().is_allow()),
            target: None,
        },
        Subject { name: "governor", decide: governor(path), target: None },
        Subject { name: "ratelimit", decide: ratelimit(path), target: None },
        Subject { name: "leaky-bucket", decide: leaky_bucket(path), target: None },
    ];
    if threads == 1 {
        // tower's RateLimit cannot be shared between threads: its state is in the service.
        subjects.push(Subject { name: "tower", decide: tower(path), target: None });
    }
    subjects
}

fn governor(path: Path) -> Decide {
    use governor::{Quota, RateLimiter};
    use std::num::NonZeroU32;
    let quota = match path {
        Path::Allowed => Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero")),
        Path::Denied => Quota::per_hour(NonZeroU32::MIN),
    };
    let limiter = RateLimiter::direct(quota);
    repeat(move || limiter.check().is_ok())
}

fn ratelimit(path: Path) -> Decide {
    use ratelimit::Ratelimiter;
    let limiter = match path {
        Path::Allowed => Ratelimiter::builder(1_000_000_000)
            .initial_available(1_000_000_000)
            .build()
            .expect("a good rate"),
        Path::Denied => {
            Ratelimiter::builder(1).period(Duration::from_secs(3_600)).build().expect("a good rate")
        }
    };
    repeat(move || limiter.try_wait().is_ok())
}

fn leaky_bucket(path: Path) -> Decide {
    use leaky_bucket::RateLimiter;
    let runtime = tokio_runtime();
    let _inside = runtime.enter();
    let builder = || RateLimiter::builder();
    let limiter = match path {
        Path::Allowed => builder()
            .initial(1_000_000_000)
            .max(1_000_000_000)
            .refill(1_000_000)
            .interval(Duration::from_millis(1))
            .build(),
        Path::Denied => builder().initial(0).interval(Duration::from_secs(3_600)).build(),
    };
    Arc::new(move |times| {
        let _inside = runtime.enter();
        let mut admitted = 0;
        for _ in 0..times {
            admitted += u32::from(black_box(limiter.try_acquire(1)));
        }
        admitted
    })
}

fn tower(path: Path) -> Decide {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};
    use tower::limit::RateLimit;
    use tower::limit::rate::Rate;
    use tower::{Service, service_fn};
    let runtime = tokio_runtime();
    let _inside = runtime.enter();
    let rate = match path {
        Path::Allowed => Rate::new(1_000_000_000, Duration::from_secs(1)),
        Path::Denied => Rate::new(1, Duration::from_secs(3_600)),
    };
    let service = service_fn(|(): ()| -> Ready<Result<(), Infallible>> { ready(Ok(())) });
    let limited = Mutex::new(RateLimit::new(service, rate));
    Arc::new(move |times| {
        let _inside = runtime.enter();
        let mut limited = limited.lock().expect("no thread panicked");
        let mut context = Context::from_waker(Waker::noop());
        let mut admitted = 0;
        for _ in 0..times {
            let is_ready = matches!(limited.poll_ready(&mut context), Poll::Ready(Ok(())));
            if is_ready {
                drop(black_box(limited.call(())));
            }
            admitted += u32::from(black_box(is_ready));
        }
        admitted
    })
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn compare(path: Path, threads: usize) {
    let subjects = subjects(path, threads);
    let mut rounds: Vec<Vec<f64>> = vec![Vec::with_capacity(ROUNDS); subjects.len()];
    // The first round warms up, and uses up the burst on the denied path.
    for round in 0..=ROUNDS {
        for (subject, times) in subjects.iter().zip(&mut rounds) {
            let nanos = measure(subject, path, threads, round == 0);
            if round > 0 {
                times.push(nanos);
            }
        }
    }
    print(path, threads, &subjects, &rounds);
}

/// Measures a turn and returns the nanoseconds of a decision, as an average over the threads.
fn measure(subject: &Subject, path: Path, threads: usize, is_warm_up: bool) -> f64 {
    let barrier = Arc::new(Barrier::new(threads));
    let run = |barrier: Arc<Barrier>, decide: Decide| {
        barrier.wait();
        let start = now();
        let admitted = decide(DECISIONS);
        (start.elapsed(), admitted)
    };
    let workers: Vec<_> = (1..threads)
        .map(|_| {
            let (barrier, decide) = (Arc::clone(&barrier), Arc::clone(&subject.decide));
            std::thread::spawn(move || run(barrier, decide))
        })
        .collect();
    let mut results = vec![run(barrier, Arc::clone(&subject.decide))];
    results.extend(workers.into_iter().map(|worker| worker.join().expect("it does not panic")));
    let expected = if path == Path::Allowed { DECISIONS } else { 0 };
    if !is_warm_up {
        let admitted = results.iter().map(|(_, admitted)| *admitted);
        assert!(admitted.clone().all(|a| a == expected), "{} took another path", subject.name);
    }
    let total: f64 = results.iter().map(|(elapsed, _)| elapsed.as_secs_f64()).sum();
    let decisions: f64 = results.iter().map(|_| f64::from(DECISIONS)).sum();
    total * 1e9 / decisions
}

fn print(path: Path, threads: usize, subjects: &[Subject], rounds: &[Vec<f64>]) {
    let what = if path == Path::Allowed { "allowed" } else { "denied" };
    let plural = if threads == 1 { "" } else { "s" };
    println!("\n{what} path, {threads} thread{plural} on one limiter, {ROUNDS} rounds");
    println!("{:<24} {:>9}   ratio to governor: median (range)", "", "ns/op");
    let index = |name| subjects.iter().position(|subject| subject.name == name).expect("present");
    let governor = &rounds[index("governor")];
    for (subject, times) in subjects.iter().zip(rounds) {
        let ratio = Ratio::of(times, governor);
        let verdict = subject.target.map(|most| ratio.verdict(most)).unwrap_or_default();
        println!("{:<24} {:>9.1}   {ratio}  {verdict}", subject.name, median(times));
    }
    for peer in ["ratelimit", "leaky-bucket"] {
        let ratio = Ratio::of(&rounds[index("tidegate")], &rounds[index(peer)]);
        println!("tidegate / {peer:<13} {:>9}   {ratio}", "");
    }
}
