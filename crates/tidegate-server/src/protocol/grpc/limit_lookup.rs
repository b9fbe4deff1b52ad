//! Finds the limits and keys of a request's descriptors.
//!
//! Invariant A lookup is for one set of limits: a reload makes another.

use super::envoy_rate;
use super::proto::{RateLimit, RateLimitOverride};
use super::request::{Descriptor, Request};
use crate::engine::{ClientEngine, Limit, Limits, NoSuchLimit};
use crate::matching::descriptor_key;
use std::borrow::Cow;
use std::sync::Arc;
use tonic::Status;

/// The configured limits, each with its description for Envoy.
#[derive(Debug)]
pub(super) struct LimitLookup {
    limits: Arc<Limits>,
    /// By the index of the limit.
    descriptions: Vec<RateLimit>,
}

/// The keys and values of a descriptor's entries.
type Entries<'a> = Vec<(&'a str, &'a str)>;

/// The limit that counts a descriptor.
#[derive(Debug)]
pub(super) enum DescriptorLimit<'a> {
    /// No limit counts the descriptor.
    Unlimited,
    /// The descriptor's own limit admits nothing.
    Zero(RateLimit),
    /// This limit counts it, under this key.
    Limited { limit: Cow<'a, Arc<Limit>>, description: Cow<'a, RateLimit>, key: Vec<u8> },
}

impl LimitLookup {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        let describe = |limit: &Arc<Limit>| envoy_rate::describe_rule(limit.name(), limit.rule());
        Self { descriptions: limits.named().iter().map(describe).collect(), limits }
    }

    pub(super) fn is_for(&self, limits: &Arc<Limits>) -> bool {
        Arc::ptr_eq(&self.limits, limits)
    }

    /// Finds the limit of each descriptor. A limit that another one replaces counts nothing.
    pub(super) fn find_all(
        &self,
        request: &Request<'_>,
        engine: ClientEngine<'_>,
    ) -> Result<Vec<DescriptorLimit<'_>>, Status> {
        let entries: Vec<Entries<'_>> = request.descriptors.iter().map(entries).collect();
        let indexes = self.indexes(&request.domain, &entries);
        let found = request.descriptors.iter().zip(&entries).zip(indexes);
        let counted =
            found.map(|((descriptor, entries), index)| match (&descriptor.limit, index) {
                (Some(own), _) => own_limit(&request.domain, descriptor, own, engine),
                (None, Some(index)) => Ok(self.counted(index, entries)),
                (None, None) => Ok(DescriptorLimit::Unlimited),
            });
        counted.collect()
    }

    fn indexes(&self, domain: &str, entries: &[Entries<'_>]) -> Vec<Option<usize>> {
        let descriptors = self.limits.descriptors();
        match entries {
            // Only a descriptor of the same request could replace its limit.
            [single] => vec![descriptors.find(domain, single)],
            several => {
                let several: Vec<&[(&str, &str)]> = several.iter().map(Vec::as_slice).collect();
                descriptors.find_all(domain, &several)
            }
        }
    }

    fn counted(&self, index: usize, entries: &[(&str, &str)]) -> DescriptorLimit<'_> {
        let (limit, description) = (&self.limits.named()[index], &self.descriptions[index]);
        let key = descriptor_key(limit.config(), entries);
        DescriptorLimit::Limited {
            limit: Cow::Borrowed(limit),
            description: Cow::Borrowed(description),
            key,
        }
    }
}

/// Returns the entries by which limits are found; none if the descriptor has its own limit.
fn entries<'a>(descriptor: &'a Descriptor<'_>) -> Entries<'a> {
    if descriptor.limit.is_some() {
        return Vec::new();
    }
    descriptor.entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect()
}

/// Returns the descriptor's own limit, which replaces all configured ones.
fn own_limit<'a>(
    domain: &str,
    descriptor: &Descriptor<'_>,
    own: &RateLimitOverride,
    engine: ClientEngine<'_>,
) -> Result<DescriptorLimit<'a>, Status> {
    let description = envoy_rate::describe_override(own);
    let Some(text) = envoy_rate::rule_text(own) else {
        // A denial takes no place in the table of ad-hoc rules, so it does not depend on `ad_hoc_rules`. Refused, the call
        // would pass under Envoy's default of `failure_mode_deny`.
        return Ok(DescriptorLimit::Zero(description));
    };
    let limit = Cow::Owned(engine.find(&text).map_err(|error| refused(&error))?);
    Ok(DescriptorLimit::Limited {
        limit,
        description: Cow::Owned(description),
        key: whole_key(domain, descriptor),
    })
}

fn refused(error: &NoSuchLimit) -> Status {
    match error {
        NoSuchLimit::TooManyRules => Status::resource_exhausted(error.to_string()),
        NoSuchLimit::NoAdHocRules(_) => Status::permission_denied(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}

/// Returns a key of the whole descriptor. Each text has its length before it, so that different descriptors have different keys.
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

impl DescriptorLimit<'_> {
    pub(super) fn description(&self) -> Option<&RateLimit> {
        match self {
            Self::Unlimited => None,
            Self::Zero(description) => Some(description),
            Self::Limited { description, .. } => Some(description),
        }
    }

    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Limited { limit, .. } => Some(limit),
            _ => None,
        }
    }
}
