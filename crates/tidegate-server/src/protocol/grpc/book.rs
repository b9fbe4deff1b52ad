//! Which limits count a request's descriptors, under which keys, and what Envoy is told of them.
//!
//! Always   A book is of one set of limits: after a reload there is another.

use super::proto::{RateLimit, RateLimitOverride};
use super::rate;
use super::request::{Descriptor, Request};
use crate::engine::{ClientEngine, Limit, Limits, NoSuchLimit};
use crate::matching::descriptor_key;
use std::borrow::Cow;
use std::sync::Arc;
use tonic::Status;

/// The limits in place, as Envoy is told of them.
#[derive(Debug)]
pub(super) struct Book {
    limits: Arc<Limits>,
    /// By the limits' places.
    told: Vec<RateLimit>,
}

/// Keys and values.
type Entries<'a> = Vec<(&'a str, &'a str)>;

/// Who counts a descriptor.
#[derive(Debug)]
pub(super) enum Counted<'a> {
    /// Nobody.
    Free,
    /// A limit that admits nobody came with it.
    Shut(RateLimit),
    /// This limit, by this key.
    By { limit: Cow<'a, Arc<Limit>>, told: Cow<'a, RateLimit>, key: Vec<u8> },
}

impl Book {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        let told = |limit: &Arc<Limit>| rate::current_limit(limit.name(), limit.rule());
        Self { told: limits.named().iter().map(told).collect(), limits }
    }

    pub(super) fn is_of(&self, limits: &Arc<Limits>) -> bool {
        Arc::ptr_eq(&self.limits, limits)
    }

    /// Who counts each descriptor. Limits that another one stands in for count nobody.
    pub(super) fn find_all(
        &self,
        request: &Request<'_>,
        engine: ClientEngine<'_>,
    ) -> Result<Vec<Counted<'_>>, Status> {
        let entries: Vec<Entries<'_>> = request.descriptors.iter().map(entries).collect();
        let places = self.places(&request.domain, &entries);
        let found = request.descriptors.iter().zip(&entries).zip(places);
        let counted =
            found.map(|((descriptor, entries), place)| match (&descriptor.limit, place) {
                (Some(asked), _) => find_asked(&request.domain, descriptor, asked, engine),
                (None, Some(place)) => Ok(self.counted(place, entries)),
                (None, None) => Ok(Counted::Free),
            });
        counted.collect()
    }

    fn places(&self, domain: &str, entries: &[Entries<'_>]) -> Vec<Option<usize>> {
        let descriptors = self.limits.descriptors();
        match entries {
            // Nothing stands in for it.
            [alone] => vec![descriptors.find(domain, alone)],
            several => {
                let several: Vec<&[(&str, &str)]> = several.iter().map(Vec::as_slice).collect();
                descriptors.find_all(domain, &several)
            }
        }
    }

    fn counted(&self, place: usize, entries: &[(&str, &str)]) -> Counted<'_> {
        let (limit, told) = (&self.limits.named()[place], &self.told[place]);
        let key = descriptor_key(limit.config(), entries);
        Counted::By { limit: Cow::Borrowed(limit), told: Cow::Borrowed(told), key }
    }
}

/// What limits are found by: nothing, where the descriptor brings its own.
fn entries<'a>(descriptor: &'a Descriptor<'_>) -> Entries<'a> {
    if descriptor.limit.is_some() {
        return Vec::new();
    }
    descriptor.entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect()
}

/// A limit that comes with a descriptor takes the place of all that is configured.
fn find_asked<'a>(
    domain: &str,
    descriptor: &Descriptor<'_>,
    asked: &RateLimitOverride,
    engine: ClientEngine<'_>,
) -> Result<Counted<'a>, Status> {
    let told = rate::asked_limit(asked);
    let Some(text) = rate::rule_text(asked) else { return Ok(Counted::Shut(told)) };
    let limit = Cow::Owned(engine.find(&text).map_err(|error| refused(&error))?);
    Ok(Counted::By { limit, told: Cow::Owned(told), key: whole_key(domain, descriptor) })
}

fn refused(error: &NoSuchLimit) -> Status {
    match error {
        NoSuchLimit::TooManyRules => Status::resource_exhausted(error.to_string()),
        NoSuchLimit::NoAdHocRules(_) => Status::permission_denied(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}

/// Everything that the descriptor says. Lengths come first, so that no two descriptors are one key.
fn whole_key(domain: &str, descriptor: &Descriptor<'_>) -> Vec<u8> {
    let texts = descriptor.entries.iter().flat_map(|(key, value)| [key.as_ref(), value.as_ref()]);
    let mut whole = Vec::with_capacity(64);
    for text in std::iter::once(domain).chain(texts) {
        whole.extend_from_slice(itoa::Buffer::new().format(text.len()).as_bytes());
        whole.push(b':');
        whole.extend_from_slice(text.as_bytes());
    }
    whole
}

impl Counted<'_> {
    pub(super) fn told(&self) -> Option<&RateLimit> {
        match self {
            Self::Free => None,
            Self::Shut(told) => Some(told),
            Self::By { told, .. } => Some(told),
        }
    }

    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Self::By { limit, .. } => Some(limit),
            _ => None,
        }
    }
}
