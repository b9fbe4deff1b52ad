//! Which limits count a request's descriptors, under which keys, and what Envoy is told of them.
//!
//! Always   A book is of one set of limits: after a reload there is another.

use super::lookup::{Lookup, descriptor_key};
use super::proto::{RateLimit, RateLimitOverride};
use super::rate;
use super::request::{Descriptor, Request};
use crate::config::Mode;
use crate::engine::{Engine, Limit, Limits, NoSuchLimit};
use std::borrow::Cow;
use std::sync::Arc;

/// The limits in place, as descriptors find them.
#[derive(Debug)]
pub(super) struct Book {
    limits: Arc<Limits>,
    lookup: Lookup,
    /// What Envoy is told, by the limits' numbers.
    told: Vec<RateLimit>,
}

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
        Self {
            lookup: Lookup::new(limits.named()),
            told: limits.named().iter().map(told).collect(),
            limits,
        }
    }

    pub(super) fn is_of(&self, limits: &Arc<Limits>) -> bool {
        Arc::ptr_eq(&self.limits, limits)
    }

    /// Who counts each descriptor. Limits that another one stands in for count nobody.
    pub(super) fn find_all(
        &self,
        request: &Request<'_>,
        engine: &Engine,
    ) -> Result<Vec<Counted<'_>>, NoSuchLimit> {
        let find = |descriptor| self.find(&request.domain, descriptor, engine);
        let mut found: Vec<Counted<'_>> =
            request.descriptors.iter().map(find).collect::<Result<_, _>>()?;
        if found.iter().any(|counted| !counted.replaces().is_empty()) {
            replace(&mut found);
        }
        Ok(found)
    }

    fn find(
        &self,
        domain: &str,
        descriptor: &Descriptor<'_>,
        engine: &Engine,
    ) -> Result<Counted<'_>, NoSuchLimit> {
        if let Some(asked) = &descriptor.limit {
            return find_asked(domain, descriptor, asked, engine);
        }
        let pairs = descriptor.entries.iter();
        let entries: Vec<(&str, &str)> = pairs.map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
        Ok(match self.lookup.find(domain, &entries) {
            None => Counted::Free,
            Some(number) => {
                let limit = &self.limits.named()[number];
                let key = descriptor_key(limit, &entries);
                Counted::By {
                    limit: Cow::Borrowed(limit),
                    told: Cow::Borrowed(&self.told[number]),
                    key,
                }
            }
        })
    }
}

/// A limit that comes with a descriptor takes the place of all that is configured.
fn find_asked<'a>(
    domain: &str,
    descriptor: &Descriptor<'_>,
    asked: &RateLimitOverride,
    engine: &Engine,
) -> Result<Counted<'a>, NoSuchLimit> {
    let told = rate::asked_limit(asked);
    let Some(text) = rate::rule_text(asked) else { return Ok(Counted::Shut(told)) };
    let limit = Cow::Owned(engine.find(&text)?);
    Ok(Counted::By { limit, told: Cow::Owned(told), key: whole_key(domain, descriptor) })
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

fn replace(found: &mut [Counted<'_>]) {
    let is_replaced = |place: usize, name: &str| {
        let others = found.iter().enumerate().filter(|(other, _)| *other != place);
        others.flat_map(|(_, other)| other.replaces()).any(|replaced| replaced == name)
    };
    let gone: Vec<bool> = found
        .iter()
        .enumerate()
        .map(|(place, counted)| counted.name().is_some_and(|name| is_replaced(place, name)))
        .collect();
    for (counted, is_gone) in found.iter_mut().zip(gone) {
        if is_gone {
            *counted = Counted::Free;
        }
    }
}

impl Counted<'_> {
    fn name(&self) -> Option<&str> {
        match self {
            // A limit that came with a descriptor has no name that a configuration could know.
            Self::By { limit: Cow::Borrowed(limit), .. } => Some(limit.name()),
            _ => None,
        }
    }

    fn replaces(&self) -> &[String] {
        match self {
            Self::By { limit: Cow::Borrowed(limit), .. } => {
                limit.config().descriptor.as_ref().map_or(&[], |descriptor| &descriptor.replaces)
            }
            _ => &[],
        }
    }

    pub(super) fn mode(&self) -> Option<Mode> {
        match self {
            Self::By { limit, .. } => Some(limit.mode()),
            _ => None,
        }
    }

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
