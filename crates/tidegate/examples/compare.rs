//! The same traffic under several rules, as pictures: what each lets through, delays and denies.
//!
//! `cargo run --release --example compare -- "20/s burst 5" "20/s queue"` compares rules of your own.
//! Time is simulated, so four seconds take none, and every run is the same.
#![expect(clippy::print_stderr, reason = "the error of a bad rule")]

use std::io::Write;
use std::process::ExitCode;
use tidegate::{Clock, Gate, ManualClock, Permit, Retry, Rule, Span, Timestamp, Verdict};

/// Shown when no rule is given: ten a second, as most algorithms understand it.
const RULES: [&str; 10] = [
    "10/s",
    "10/s paced",
    "10/s fixed",
    "10/s sliding",
    "10/s sliding-log",
    "10/s queue capacity 5",
    "10/s smooth",
    "10/s warmup 1s",
    "10r/s burst=5 nodelay",
    "concurrency 3",
];

const USAGE: &str = "\
Shows what rules do to the same traffic.

Usage: compare [RULE]...

Each rule is one argument: compare \"20/s burst 5\" \"20/s queue\". Without rules, ten are shown.
How rules are written: docs/guide/rules.md";

const COLUMNS: u64 = 80;
const COLUMN: Span = Span::from_millis(50);
const SECOND: Span = Span::from_secs(1);
/// How long a request that was admitted by a concurrency rule is in flight.
const WORK: Span = Span::from_millis(200);
/// The longest wait of a request.
const PATIENCE: Span = Span::from_millis(500);

fn main() -> ExitCode {
    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.iter().any(|text| text == "--help" || text == "-h") {
        let _ = writeln!(std::io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    if texts.is_empty() {
        texts = RULES.map(str::to_owned).to_vec();
    }
    let rules: Vec<Rule> = match texts.iter().map(|text| text.parse()).collect() {
        Ok(rules) => rules,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut lines = traffic();
    for rule in &rules {
        lines.extend([String::new(), rule.to_string()]);
        lines.extend(wrapped(&rule.explain(), 96).iter().map(|line| format!("  {line}")));
        lines.extend(picture(&simulate(rule)));
    }
    // If the reader has closed the pipe after the first lines, that is no failure.
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    ExitCode::SUCCESS
}

/// When requests come: 20 at once, then 20 a second and 10 a second, a rest, and 20 on either side of
/// a full second.
fn arrivals() -> Vec<Span> {
    let at_once = |ms| std::iter::repeat_n(ms, 20);
    let steady = (500..1500).step_by(50).chain((1500..2000).step_by(100));
    let ms = at_once(0).chain(steady).chain(at_once(2950)).chain(at_once(3000));
    ms.map(Span::from_millis).collect()
}

/// The times at which requests passed or were denied, since the start.
#[derive(Default)]
struct Simulation {
    allow: Vec<Span>,
    wait: Vec<Span>,
    deny: Vec<Span>,
}

fn simulate(rule: &Rule) -> Simulation {
    let holds_permits = rule.to_string().starts_with("concurrency");
    let clock = ManualClock::new();
    let start = clock.now();
    let gate = Gate::with_clock(rule.clone(), clock.clone());
    let mut in_flight: Vec<(Timestamp, Permit<ManualClock>)> = Vec::new();
    let mut outcome = Simulation::default();
    for at in arrivals() {
        clock.set(start + at);
        in_flight.retain(|(done_at, _)| *done_at > clock.now());
        if holds_permits {
            match gate.try_acquire() {
                Ok(permit) => {
                    in_flight.push((clock.now() + WORK, permit));
                    outcome.allow.push(at);
                }
                Err(_) => outcome.deny.push(at),
            }
            continue;
        }
        match ask(&gate) {
            Verdict::Allow => outcome.allow.push(at),
            Verdict::Wait(wait) => outcome.wait.push(at + wait),
            Verdict::Deny(_) => outcome.deny.push(at),
        }
    }
    outcome
}

/// Peeks first, and sends no request whose turn would come too late.
fn ask(gate: &Gate<ManualClock>) -> Verdict {
    match gate.peek().verdict {
        Verdict::Wait(wait) if wait > PATIENCE => Verdict::Deny(Retry::After(wait)),
        _ => gate.check().verdict,
    }
}

/// Returns the legend of the pictures, and the row of the requests.
fn traffic() -> Vec<String> {
    let seconds = ["0s", "1s", "2s", "3s"].map(|second| format!("{second:<20}")).concat();
    vec![
        format!(
            "The same requests under each rule. A column is {COLUMN}; a digit says how many, and"
        ),
        "* ten or more. A request that waits is shown when it is admitted; none waits longer than"
            .into(),
        format!("{PATIENCE}. Under a concurrency rule each request takes {WORK}.\n"),
        format!("        {}", seconds.trim_end()),
        format!("        {}", "|....:....|....:....".repeat(4)),
        format!("   sent {}", row(&arrivals())),
    ]
}

fn picture(outcome: &Simulation) -> Vec<String> {
    let Simulation { allow, wait, deny } = outcome;
    let rows = [("allow", allow), (" wait", wait), (" deny", deny)];
    let drawn = rows.iter().filter(|(_, times)| !times.is_empty());
    let mut lines: Vec<String> =
        drawn.map(|(name, times)| format!("  {name} {}", row(times))).collect();
    lines.push(format!(
        "        {} allowed, {} waited, {} denied; most in any {SECOND}: {}",
        allow.len(),
        wait.len(),
        deny.len(),
        most_in_a_second(outcome)
    ));
    lines
}

/// Returns one character for each column: the number of times in it.
fn row(times: &[Span]) -> String {
    let column_of = |time: &Span| time.as_micros() / COLUMN.as_micros();
    let in_column = |column: u64| times.iter().filter(|time| column_of(time) == column).count();
    let mark = |count: usize| " 123456789".chars().nth(count).unwrap_or('*');
    let row: String = (0..COLUMNS).map(|column| mark(in_column(column))).collect();
    row.trim_end().to_owned()
}

/// Returns the largest number of admissions in any interval of a second.
fn most_in_a_second(outcome: &Simulation) -> usize {
    let mut passes = [&outcome.allow[..], &outcome.wait[..]].concat();
    passes.sort_unstable();
    let from = |first: usize| {
        let end = passes[first] + SECOND;
        passes[first..].iter().take_while(|pass| **pass < end).count()
    };
    (0..passes.len()).map(from).max().unwrap_or(0)
}

/// Breaks a text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
