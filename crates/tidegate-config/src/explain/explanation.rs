//! What would happen to a request: the decision of all limits together.

use super::descriptor::{self, DescriptorExplanation, Entry};
use super::limit::{KeyToPeek, LimitExplanation, VerdictKind, Weight};
use crate::config::LimitConfig;
use crate::matching::{Descriptors, Path, Request};
use serde::Serialize;

/// What would happen to a request now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The decision of all limits together.
    pub verdict: VerdictKind,
    /// The limit that decides: the one with the longest wait, or else the one with the least remaining. `None` if no enforced
    /// limit counts the request.
    pub decided_by: Option<String>,
    /// The path as limits compare it, with escapes, if it differs from the sent path; or a note that it is ambiguous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Each limit in the order of the configuration; empty for a request of Envoy's.
    pub limits: Vec<LimitExplanation>,
    /// For a request of Envoy's, each descriptor in the order of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<DescriptorExplanation>,
    /// A setting that is probably not what the operator meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Explanation {
    /// Explains which of these limits count a request.
    pub fn of_request<'a>(
        limits: impl IntoIterator<Item = &'a LimitConfig>,
        request: &Request<'_>,
    ) -> Self {
        let limits = limits.into_iter().enumerate();
        let limits =
            limits.map(|(index, limit)| LimitExplanation::of_request(index, limit, request));
        let path = request.path.as_ref().and_then(path_as_compared);
        Self { path, limits: limits.collect(), ..Self::empty() }
    }

    /// Explains which of these limits count a request of this domain with these descriptors.
    pub fn of_descriptors(
        limits: &[&LimitConfig],
        descriptors: &Descriptors,
        domain: &str,
        requested: &[Vec<Entry>],
    ) -> Self {
        let descriptors = descriptor::explained(limits, descriptors, domain, requested);
        Self { descriptors, ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            verdict: VerdictKind::Allow,
            decided_by: None,
            path: None,
            limits: Vec::new(),
            descriptors: Vec::new(),
            hint: None,
        }
    }

    /// Returns the limits that count the request and need the state of a key.
    pub fn limits_to_peek(
        &mut self,
    ) -> impl Iterator<Item = (KeyToPeek, &mut LimitExplanation)> + use<'_> {
        let of_descriptors = self.descriptors.iter_mut().filter_map(|it| it.limit.as_mut());
        let limits = self.limits.iter_mut().chain(of_descriptors);
        limits.filter_map(|limit| Some((limit.to_peek.take()?, limit)))
    }

    /// Combines the decisions of all limits. Of limits with the same decision, the first one decides.
    #[must_use]
    pub fn conclude(mut self) -> Self {
        let of_descriptors = self.descriptors.iter().filter_map(|it| it.limit.as_ref());
        let limits = self.limits.iter().chain(of_descriptors);
        let weights: Vec<(Weight, &str)> =
            limits.filter_map(|limit| Some((limit.weight?, &*limit.limit))).collect();
        let heaviest = weights.iter().map(|(weight, _)| *weight).max();
        let decisive = weights.iter().find(|(weight, _)| Some(*weight) == heaviest);
        let decided_by = decisive.map(|(_, limit)| (*limit).to_owned());
        self.verdict = heaviest.map_or(VerdictKind::Allow, Weight::verdict);
        self.decided_by = decided_by;
        self
    }
}

/// Returns the path as limits compare it, unless the sent path has this form.
fn path_as_compared(path: &Path<'_>) -> Option<String> {
    match path.canonical() {
        None => Some("ambiguous: servers differ about the page that it means".to_owned()),
        Some(_) if path.came_canonical() => None,
        Some(canonical) => Some(canonical.escape_ascii().to_string()),
    }
}
