//! RESP: `TIDE.*`, in the bytes that a Redis client sends and hears.

use super::wire::Speaker;
use super::{Answer, Patience, Refusal};
use std::sync::Arc;
use tidegate::{ManualClock, Retry, Span, Verdict};
use tidegate_server::resp::Session;
use tidegate_server::server::Server;

/// Somebody with a Redis client.
pub struct Resp {
    session: Session,
    patience: Patience,
}

impl Resp {
    fn say(&mut self, words: &[&str]) -> Result<Vec<String>, Refusal> {
        let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        let bulks: String = words.iter().map(bulk).collect();
        let bytes = format!("*{}\r\n{bulks}", words.len());
        let answered = self.patience.wait(self.session.answer(bytes.as_bytes()));
        answered.ok_or_else(waits)?;
        let said = String::from_utf8_lossy(self.session.said()).into_owned();
        self.session.forget_said();
        if said.starts_with('-') {
            return Err(Refusal::Failed(said));
        }
        Ok(said.lines().map(str::to_owned).collect())
    }

    fn ask(&mut self, words: &[&str]) -> Result<Answer, Refusal> {
        answer(&self.say(words)?)
    }
}

pub(super) fn waits() -> Refusal {
    Refusal::Failed("the server waits for something".to_owned())
}

fn integer(line: Option<&String>) -> Result<i64, Refusal> {
    let integer = line.and_then(|line| line.strip_prefix(':')).and_then(|text| text.parse().ok());
    integer.ok_or_else(|| Refusal::Failed(format!("{line:?} is no integer")))
}

/// `*5 :allowed :limit :remaining :retry_after_ms :reset_after_ms`
fn answer(lines: &[String]) -> Result<Answer, Refusal> {
    let number = |place| integer(lines.get(place));
    let span = |ms: i64| Span::from_millis(u64::try_from(ms).unwrap_or(0));
    let verdict = match (number(1)?, number(4)?) {
        (1, 0) => Verdict::Allow,
        (1, wait) => Verdict::Wait(span(wait)),
        (_, -1) => Verdict::Deny(Retry::Never),
        (_, -2) => Verdict::Deny(Retry::OnRelease),
        (_, retry) => Verdict::Deny(Retry::After(span(retry))),
    };
    // A lease stands where others have the reset.
    let reset_after = number(5).ok().map(span);
    let whole = |number: i64| u64::try_from(number).ok();
    Ok(Answer { verdict, limit: whole(number(2)?), remaining: whole(number(3)?), reset_after })
}

impl Speaker for Resp {
    fn new(server: Arc<Server>, patience: Patience, _: ManualClock) -> Self {
        Self { session: Session::new(server), patience }
    }

    fn precision() -> Span {
        Span::from_millis(1)
    }

    fn check(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        self.ask(&["TIDE.CHECK", limit, key, "COST", &cost.to_string()])
    }

    fn check_all(&mut self, limits: &[String], key: &str, cost: u64) -> Result<Answer, Refusal> {
        let cost = cost.to_string();
        let mut words = vec!["TIDE.CHECKALL"];
        for limit in limits {
            words.extend([limit.as_str(), key, &cost]);
        }
        answer(&self.say(&words)?[1..])
    }

    fn peek(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        self.ask(&["TIDE.PEEK", limit, key, "COST", &cost.to_string()])
    }

    fn refund(&mut self, limit: &str, key: &str, cost: u64) -> Result<(), Refusal> {
        self.say(&["TIDE.REFUND", limit, key, "COST", &cost.to_string()]).map(drop)
    }

    fn reset(&mut self, limit: &str, key: &str) -> Result<(), Refusal> {
        self.say(&["TIDE.RESET", limit, key]).map(drop)
    }

    fn acquire(
        &mut self,
        limit: &str,
        key: &str,
        cost: u64,
    ) -> Result<(Answer, Option<String>), Refusal> {
        let lines = self.say(&["TIDE.ACQUIRE", limit, key, "COST", &cost.to_string()])?;
        let mut answer = answer(&lines)?;
        let lease = lines.get(6).cloned();
        if lease.is_some() {
            // What stands where others have the wait is how long the place is held.
            answer.verdict = Verdict::Allow;
        }
        Ok((answer, lease))
    }

    fn release(&mut self, lease: &str) -> Result<(), Refusal> {
        self.say(&["TIDE.RELEASE", lease]).map(drop)
    }
}
