//! Which limit counts a descriptor: level by level, the exact value, then a pattern, then any value.
//!
//! Always   As envoyproxy/ratelimit does it: what is chosen on a level is not taken back, and a limit counts only
//!          descriptors that are as deep as itself.

use crate::engine::Limit;
use crate::matching::Pattern;
use std::collections::HashMap;
use std::sync::Arc;

/// All limits that count descriptors.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    domains: HashMap<String, Node>,
}

/// What stands below a chain of entries.
#[derive(Debug, Default)]
struct Node {
    /// The limit's number.
    limit: Option<usize>,
    below: HashMap<String, Values>,
}

/// The values that one key may have.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<String, Node>,
    patterns: Vec<(Pattern, Node)>,
    any: Option<Box<Node>>,
}

impl Lookup {
    pub(super) fn new(limits: &[Arc<Limit>]) -> Self {
        let mut lookup = Self::default();
        for (number, limit) in limits.iter().enumerate() {
            let Some(descriptor) = &limit.config().descriptor else { continue };
            let mut node = lookup.domains.entry(descriptor.domain.clone()).or_default();
            for part in &descriptor.entries {
                let values = node.below.entry(part.key.clone()).or_default();
                node = values.make(part.value.as_ref());
            }
            // Of two for one descriptor, the first counts.
            node.limit.get_or_insert(number);
        }
        lookup
    }

    /// The limit's number.
    pub(super) fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<usize> {
        let mut node = self.domains.get(domain)?;
        for (name, value) in entries {
            node = node.below.get(*name)?.choose(value)?;
        }
        node.limit
    }
}

/// Whom a limit counts in a descriptor.
pub(super) fn descriptor_key(_: &Limit, entries: &[(&str, &str)]) -> Vec<u8> {
    let mut key = Vec::new();
    for (_, value) in entries {
        write_part(&mut key, value);
    }
    key
}

impl Values {
    fn make(&mut self, value: Option<&Pattern>) -> &mut Node {
        match value {
            None => self.any.get_or_insert_default(),
            Some(Pattern(text)) if !text.contains('*') => {
                self.exact.entry(text.clone()).or_default()
            }
            Some(pattern) => {
                let known = self.patterns.iter().position(|(known, _)| known == pattern);
                let place = known.unwrap_or_else(|| {
                    self.patterns.push((pattern.clone(), Node::default()));
                    self.patterns.len() - 1
                });
                &mut self.patterns[place].1
            }
        }
    }

    fn choose(&self, value: &str) -> Option<&Node> {
        let by_pattern = || self.patterns.iter().find(|(pattern, _)| is_match(&pattern.0, value));
        let pattern = || by_pattern().map(|(_, node)| node);
        self.exact.get(value).or_else(pattern).or(self.any.as_deref())
    }
}

fn write_part(key: &mut Vec<u8>, value: &str) {
    if !key.is_empty() {
        key.push(b'|');
    }
    for byte in value.bytes() {
        if matches!(byte, b'|' | b'\\') {
            key.push(b'\\');
        }
        key.push(byte);
    }
}

fn is_match(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    match tail.rsplit_once('*') {
        None => rest.ends_with(tail),
        Some((middle, end)) => {
            let mut rest = rest;
            for part in middle.split('*') {
                let Some(at) = rest.find(part) else { return false };
                rest = &rest[at + part.len()..];
            }
            rest.ends_with(end)
        }
    }
}
