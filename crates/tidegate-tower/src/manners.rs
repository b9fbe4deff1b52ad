//! How a layer behaves to those who ask, whatever it limits.

use crate::answer::{Answer, HeaderStyle, Told};
use crate::head::{Head, Surroundings};
use crate::key::Missing;
use crate::limit::Limit;
use crate::observe::{Event, Observer};
use crate::refusal::{self, Denial, Maker};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use std::sync::Arc;
use tidegate::{Clock, Decision};

#[derive(Clone)]
pub(crate) struct Manners {
    pub(crate) surroundings: Surroundings,
    pub(crate) style: Option<HeaderStyle>,
    pub(crate) status: StatusCode,
    pub(crate) maker: Option<Maker>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            surroundings: Surroundings::default(),
            style: Some(HeaderStyle::default()),
            status: StatusCode::TOO_MANY_REQUESTS,
            maker: None,
            observers: Vec::new(),
        }
    }
}

impl Manners {
    /// Tells the observers.
    #[inline]
    pub(crate) fn observe<C: Clock>(
        &self,
        limit: &Limit<C>,
        decision: Decision,
        key: &[u8],
        cost: u64,
    ) {
        for observer in &self.observers {
            let key = observer.wants_keys().then_some(key);
            let (name, is_shadow) = (&limit.name, limit.is_shadow);
            let priority = None;
            observer.decided(&Event { limit: name, decision, is_shadow, cost, key, priority });
        }
    }

    /// The response to who is denied, but for the fields that tell what is left.
    pub(crate) fn denied(
        &self,
        head: &Head<'_>,
        told: &[Told<'_>],
        decision: Decision,
    ) -> Response<Bytes> {
        match &self.maker {
            Some(make) => make(head, &Denial::new(told, decision)),
            None => refusal::denied(head, self.status, told, decision),
        }
    }

    /// The response to who has no key.
    pub(crate) fn without_key<C: Clock>(
        &self,
        head: &Head<'_>,
        limit: &Limit<C>,
        missing: Missing,
    ) -> Response<Bytes> {
        if limit.without_key(missing).is_some() {
            let key = format!("{:?}", limit.key);
            return refusal::without_key(head, self.status, &limit.name, &key);
        }
        #[cfg(feature = "tracing")]
        tracing::error!(target: "tidegate", "limit `{}` {}", limit.name, refusal::NO_PEER);
        refusal::without_peer(head, &limit.name)
    }

    /// Writes what these limits said, and what `all` of them together said.
    pub(crate) fn write(&self, headers: &mut HeaderMap, told: &[Told<'_>], all: &Answer) {
        if let Some(style) = self.style {
            style.write(headers, told, all);
        }
    }
}
