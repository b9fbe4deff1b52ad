//! Envoy's rate limit service: descriptors in, one answer and a status for each of them out.
//!
//! Always   A request that is denied is charged nowhere, whatever its other descriptors say; the reference
//!          server charges them all.
//! Always   Statuses are as many as descriptors, and in their order.
//! Order    What is given back comes first, then what is only looked at, then what is taken: a request that is
//!          denied by a look takes nothing.

use super::book::{Book, Counted};
use super::proto::RateLimitResponse;
use super::reply;
use super::request::Request;
use crate::engine::{Answer, CheckError, LimitRequest};
use crate::server::Server;
use crate::store::StoreError;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tidegate::store::ClientId;
use tidegate::{Clock, Decision, Retry, Span, Verdict};
use tonic::Status;

/// The service, without the wire.
#[derive(Debug)]
pub struct RateLimits {
    server: Arc<Server>,
    book: ArcSwap<Book>,
}

/// What a descriptor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// To pass, and be charged.
    Take(u64),
    /// To know whether one more would pass.
    Look,
    /// To give back what was charged.
    GiveBack(u64),
}

/// A descriptor as it is decided.
struct Question<'a> {
    counted: Counted<'a>,
    want: Want,
    answer: Answer,
}

impl RateLimits {
    /// The service of this server.
    pub fn new(server: Arc<Server>) -> Self {
        let book = ArcSwap::from_pointee(Book::new(server.engine.limits()));
        Self { server, book }
    }

    /// The server that it is of.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Decides. Where the rule makes the request wait, so does this.
    pub async fn answer(&self, request: &Request<'_>) -> Result<RateLimitResponse, Status> {
        self.answer_for(ClientId::OWN, request).await
    }

    /// The same for a peer, which gets its [share](tidegate::store::Shares) of the room for rules that come with descriptors.
    pub async fn answer_for(
        &self,
        peer: ClientId,
        request: &Request<'_>,
    ) -> Result<RateLimitResponse, Status> {
        let book = self.book();
        let found = book.find_all(request, self.server.engine.by(peer))?;
        let wants = wants(request);
        let mut questions: Vec<Question<'_>> =
            found.into_iter().zip(wants).map(Question::new).collect();
        self.decide(&mut questions).await.map_err(|error| refused(&error))?;
        self.wait_for(&questions).await;
        let answered = questions.iter().map(|question| (&question.counted, &question.answer));
        Ok(reply::response(answered))
    }

    /// The limits as they stand.
    fn book(&self) -> arc_swap::Guard<Arc<Book>> {
        let limits = self.server.engine.limits();
        let book = self.book.load();
        if book.is_of(&limits) {
            return book;
        }
        // Two that find the old one at once make two new ones, and either is right.
        self.book.store(Arc::new(Book::new(limits)));
        self.book.load()
    }

    async fn decide(&self, questions: &mut [Question<'_>]) -> Result<(), CheckError> {
        // Most requests are one question, which is not worth a list.
        if let [question] = &mut *questions
            && let Some(ask) = question.take()
        {
            question.answer = self.server.engine.check(&ask).await?;
            return Ok(());
        }
        for question in questions.iter_mut() {
            match question.want {
                Want::GiveBack(cost) => question.answer = self.give_back(question, cost).await?,
                Want::Look => question.answer = self.foresee(question, 1).await?,
                Want::Take(_) => {}
            }
        }
        if questions.iter().all(|question| question.answer.passes()) {
            return self.take_all(questions).await;
        }
        for question in questions.iter_mut() {
            if let Want::Take(cost) = question.want {
                question.answer = self.foresee(question, cost).await?;
            }
        }
        Ok(())
    }

    async fn take_all(&self, questions: &mut [Question<'_>]) -> Result<(), CheckError> {
        let asks: Vec<LimitRequest<'_>> = questions.iter().filter_map(Question::take).collect();
        let joint = self.server.engine.check_all(&asks).await?;
        let taken = questions.iter_mut().filter(|question| question.take().is_some());
        for (question, answer) in taken.zip(joint.each) {
            question.answer = answer;
        }
        Ok(())
    }

    /// Whether this would pass, and what there is as long as it does not.
    async fn foresee(&self, question: &Question<'_>, cost: u64) -> Result<Answer, StoreError> {
        let Some(ask) = question.ask(cost) else { return Ok(question.answer) };
        let answer = self.server.engine.peek(&ask).await?;
        if !answer.passes() || answer.is_shadowed {
            return Ok(answer);
        }
        self.server.engine.peek(&LimitRequest { cost: 0, ..ask }).await
    }

    async fn give_back(&self, question: &Question<'_>, cost: u64) -> Result<Answer, StoreError> {
        let Some(ask) = question.ask(cost) else { return Ok(question.answer) };
        self.server.engine.refund(&ask).await?;
        self.server.engine.peek(&LimitRequest { cost: 0, ..ask }).await
    }

    /// Who is told to wait has been charged and has a turn: the answer comes when it is there.
    async fn wait_for(&self, questions: &[Question<'_>]) {
        let wait = questions.iter().map(|question| match question.answer.decision.verdict {
            Verdict::Wait(wait) => wait,
            _ => Span::ZERO,
        });
        let longest = wait.max().unwrap_or(Span::ZERO);
        if !longest.is_zero() {
            let clock = self.server.engine.clock();
            clock.sleep_until(clock.now() + longest).await;
        }
    }
}

/// What each descriptor wants: its own cost, or else the request's.
fn wants(request: &Request<'_>) -> impl Iterator<Item = Want> {
    let cost = u64::from(request.hits_addend.max(1));
    request.descriptors.iter().map(move |descriptor| {
        match (descriptor.hits_addend.unwrap_or(cost), descriptor.is_negative_hits) {
            (0, _) => Want::Look,
            (cost, true) => Want::GiveBack(cost),
            (cost, false) => Want::Take(cost),
        }
    })
}

impl<'a> Question<'a> {
    fn new((counted, want): (Counted<'a>, Want)) -> Self {
        let is_shut = matches!(counted, Counted::Shut(_)) && !matches!(want, Want::GiveBack(_));
        let answer = if is_shut { shut() } else { Answer::UNLIMITED };
        Self { counted, want, answer }
    }

    /// What is asked of the engine, if anybody counts it.
    fn ask(&self, cost: u64) -> Option<LimitRequest<'_>> {
        match &self.counted {
            Counted::By { limit, key, .. } => Some(LimitRequest { limit, key, cost }),
            Counted::Free | Counted::Shut(_) => None,
        }
    }

    /// The same, if it is to be charged.
    fn take(&self) -> Option<LimitRequest<'_>> {
        match self.want {
            Want::Take(cost) => self.ask(cost),
            Want::Look | Want::GiveBack(_) => None,
        }
    }
}

/// Nobody passes, and waiting does not help.
fn shut() -> Answer {
    let mut decision = Decision::UNLIMITED.deny(Retry::Never).decision;
    (decision.limit, decision.remaining) = (0, 0);
    Answer { decision, is_shadowed: false }
}

/// Envoy then does what its `failure_mode_deny` says.
fn refused(error: &CheckError) -> Status {
    tracing::warn!(%error, "a rate limit request could not be decided");
    match error {
        CheckError::NotCheckable(error) => Status::invalid_argument(error.to_string()),
        CheckError::Store(error) => Status::unavailable(error.to_string()),
    }
}
