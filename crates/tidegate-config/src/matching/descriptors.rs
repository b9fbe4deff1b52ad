//! Finds the limit that counts an Envoy descriptor, as Envoy's own service does.
//!
//! Always   Entries are matched from the outermost: by the exact value, else by the first configured pattern that matches,
//!          else by the key alone. The search does not backtrack: an exact value hides the key alone even if the next entry
//!          matches nothing, as in Envoy's service.
//!          A limit counts only descriptors with as many entries as its own.

use crate::config::LimitConfig;
use crate::request::{DescriptorPart, KeyPart, Pattern, key};
use std::borrow::Cow;
use std::collections::HashMap;

/// How a descriptor was matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorMatch {
    /// The configured entry that each entry matched, up to the first one without a match.
    pub matched: Vec<MatchedEntry>,
    /// The index of the limit.
    pub limit: Option<usize>,
}

/// The configured entry that an entry matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedEntry {
    /// The entry of the configuration.
    pub entry: DescriptorPart,
    /// Further configured entries that match, and are hidden by this one.
    pub hidden: Vec<DescriptorPart>,
}

/// The descriptors of all limits.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    domains: HashMap<String, Node>,
    /// For each limit, the limits that do not count a request that it counts.
    replaces: HashMap<usize, Vec<usize>>,
}

/// A node of the tree of entries.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The limit whose entries end here.
    limit: Option<usize>,
    below: HashMap<String, Branches>,
}

/// The nodes below an entry, by the value of one key.
#[derive(Clone, Debug, Default)]
struct Branches {
    exact: HashMap<String, Node>,
    /// Patterns in the order of the configuration.
    patterns: Vec<(Pattern, Node)>,
    alone: Option<Box<Node>>,
}

impl Descriptors {
    /// Collects the descriptors of these limits. Results are indices into this list.
    pub fn new<'a>(limits: impl IntoIterator<Item = &'a LimitConfig>) -> Self {
        let limits: Vec<&LimitConfig> = limits.into_iter().collect();
        let names: HashMap<&str, usize> =
            limits.iter().enumerate().map(|(index, limit)| (limit.name.as_str(), index)).collect();
        let mut descriptors = Self::default();
        for (index, limit) in limits.iter().enumerate() {
            let Some(descriptor) = &limit.descriptor else { continue };
            let mut node = descriptors.domains.entry(descriptor.domain.clone()).or_default();
            for entry in &descriptor.entries {
                node =
                    node.below.entry(entry.key.clone()).or_default().branch(entry.value.as_ref());
            }
            node.limit.get_or_insert(index);
            let replaced = descriptor.replaces.iter().filter_map(|name| names.get(name.as_str()));
            descriptors.replaces.insert(index, replaced.copied().collect());
        }
        descriptors
    }

    /// Returns whether any limit has this domain.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Returns the index of the limit that counts this descriptor.
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<usize> {
        let mut node = self.domains.get(domain)?;
        for (key, value) in entries {
            (_, node) = node.below.get(*key)?.find(value).next()?;
        }
        node.limit.filter(|_| !entries.is_empty())
    }

    /// Returns the limit that counts this descriptor, and what each entry matched.
    pub fn follow(&self, domain: &str, entries: &[(&str, &str)]) -> DescriptorMatch {
        let (mut node, mut matched) = (self.domains.get(domain), Vec::new());
        for (key, value) in entries {
            let Some(branches) = node.and_then(|node| node.below.get(*key)) else { break };
            let part = |value: Option<&str>| DescriptorPart {
                key: (*key).to_owned(),
                value: value.map(|value| Pattern(value.to_owned())),
            };
            let mut found = branches.find(value);
            let Some((entry, next)) = found.next() else { break };
            let hidden = found.map(|(value, _)| part(value)).collect();
            matched.push(MatchedEntry { entry: part(entry), hidden });
            node = Some(next);
        }
        DescriptorMatch { matched, limit: self.find(domain, entries) }
    }

    /// Returns the limit of the same request that replaces this one. `found` are the limits of the request.
    pub fn replacing(&self, found: &[Option<usize>], limit: usize) -> Option<usize> {
        let replaces = |other: &usize| {
            self.replaces.get(other).is_some_and(|replaced| replaced.contains(&limit))
        };
        found.iter().flatten().copied().find(replaces)
    }

    /// Returns the limits that count these descriptors of one request, without those that another of them replaces.
    pub fn find_all(&self, domain: &str, descriptors: &[&[(&str, &str)]]) -> Vec<Option<usize>> {
        let found: Vec<Option<usize>> =
            descriptors.iter().map(|entries| self.find(domain, entries)).collect();
        let replaced: Vec<usize> = found
            .iter()
            .flatten()
            .filter_map(|index| self.replaces.get(index))
            .flatten()
            .copied()
            .collect();
        found.into_iter().map(|index| index.filter(|index| !replaced.contains(index))).collect()
    }
}

impl Branches {
    /// Returns the node of this value, and creates it if it does not exist.
    fn branch(&mut self, value: Option<&Pattern>) -> &mut Node {
        match value {
            None => self.alone.get_or_insert_default(),
            Some(value) if !value.has_star() => self.exact.entry(value.0.clone()).or_default(),
            Some(value) => {
                let known = self.patterns.iter().position(|(pattern, _)| pattern == value);
                let index = known.unwrap_or_else(|| {
                    self.patterns.push((value.clone(), Node::default()));
                    self.patterns.len() - 1
                });
                &mut self.patterns[index].1
            }
        }
    }

    /// Returns the nodes that match a value, each with its text in the configuration: the exact value first, then patterns in
    /// their order, then the key alone.
    fn find<'a>(
        &'a self,
        value: &'a str,
    ) -> impl Iterator<Item = (Option<&'a str>, &'a Node)> + 'a {
        let exact = self.exact.get_key_value(value);
        let exact = exact.map(|(value, node)| (Some(value.as_str()), node));
        let matching = self.patterns.iter().filter(|it| it.0.matches(value.as_bytes()));
        let by_pattern = matching.map(|(pattern, node)| (Some(pattern.0.as_str()), node));
        let alone = self.alone.as_deref().map(|node| (None, node));
        exact.into_iter().chain(by_pattern).chain(alone)
    }
}

/// Returns the key of a descriptor: the values of the entries that the limit's key names, or of all entries.
pub fn descriptor_key(limit: &LimitConfig, entries: &[(&str, &str)]) -> Vec<u8> {
    let is_envoys = |part: &KeyPart| matches!(part, KeyPart::Descriptor(_) | KeyPart::Constant(_));
    if limit.key.is_empty() || !limit.key.iter().all(is_envoys) {
        return key::join(entries.iter().map(|(_, value)| bytes(value)));
    }
    key::join(limit.key.iter().map(|part| match part {
        KeyPart::Descriptor(key) => {
            let entry = entries.iter().find(|(name, _)| name == key);
            entry.map(|(_, value)| bytes(value)).unwrap_or_default()
        }
        KeyPart::Constant(text) => bytes(text),
        _ => Cow::default(),
    }))
}

fn bytes(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns limits named `a`, `b`… that count these descriptors of the domain `d`.
    fn limits(descriptors: &[&[&str]]) -> Vec<LimitConfig> {
        let limit = |(index, descriptor): (usize, &&[&str])| {
            let name = ["a", "b", "c", "d", "e"][index];
            format!(
                "[limits.{name}]\nrule = \"1/s\"\ndomain = \"d\"\ndescriptor = {descriptor:?}\n"
            )
        };
        read(&descriptors.iter().enumerate().map(limit).collect::<String>())
    }

    fn read(text: &str) -> Vec<LimitConfig> {
        crate::config::tests::read(text, "t.toml").unwrap().limits
    }

    #[test]
    fn the_exact_value_comes_before_a_pattern_and_that_before_the_key_alone() {
        let limits = limits(&[&["k"], &["k=a*"], &["k=*c"], &["k=abc"]]);
        let find = |value| Descriptors::new(&limits).find("d", &[("k", value)]);
        assert_eq!(find("abc"), Some(3));
        assert_eq!(find("axc"), Some(1), "the first pattern of the file");
        assert_eq!(find("xc"), Some(2));
        assert_eq!(find("x"), Some(0));
        assert_eq!(find(""), Some(0));
        assert_eq!(Descriptors::new(&limits).find("other", &[("k", "abc")]), None);
        assert_eq!(Descriptors::new(&limits).find("d", &[("other", "abc")]), None);
        assert_eq!(Descriptors::new(&limits).find("d", &[]), None);
    }

    #[test]
    fn a_matched_entry_lists_the_entries_that_it_hides() {
        let limits = limits(&[&["k"], &["k=a*"], &["k=abc"], &["k", "user"]]);
        let follow = |entries: &[(&str, &str)]| {
            let DescriptorMatch { matched, limit } = Descriptors::new(&limits).follow("d", entries);
            let shown = |MatchedEntry { entry, hidden }: &MatchedEntry| {
                let hidden: Vec<String> = hidden.iter().map(ToString::to_string).collect();
                format!("{entry} not {}", hidden.join(", "))
            };
            (matched.iter().map(shown).collect::<Vec<_>>(), limit)
        };
        assert_eq!(follow(&[("k", "abc")]), (vec!["k=abc not k=a*, k".to_owned()], Some(2)));
        assert_eq!(follow(&[("k", "ab")]), (vec!["k=a* not k".to_owned()], Some(1)));
        let deep = vec!["k not ".to_owned(), "user not ".to_owned()];
        assert_eq!(follow(&[("k", "x"), ("user", "ann")]), (deep, Some(3)));
        let hidden = follow(&[("k", "abc"), ("user", "ann")]);
        assert_eq!(
            hidden,
            (vec!["k=abc not k=a*, k".to_owned()], None),
            "the search does not backtrack"
        );
        assert_eq!(follow(&[("other", "x")]), (Vec::new(), None));
    }

    #[test]
    fn a_limit_counts_only_descriptors_as_deep_as_its_own() {
        let limits = limits(&[&["tenant", "user"], &["tenant=acme"]]);
        let descriptors = Descriptors::new(&limits);
        assert_eq!(descriptors.find("d", &[("tenant", "x"), ("user", "y")]), Some(0));
        assert_eq!(descriptors.find("d", &[("tenant", "x")]), None);
        assert_eq!(descriptors.find("d", &[("tenant", "acme")]), Some(1));
        assert_eq!(descriptors.find("d", &[("user", "y"), ("tenant", "x")]), None);
        // The exact value hides the key alone, as in Envoy's service.
        assert_eq!(descriptors.find("d", &[("tenant", "acme"), ("user", "y")]), None);
    }

    #[test]
    fn a_limit_that_is_replaced_does_not_count() {
        let limits = read(
            "[limits.all]\nrule = \"1/s\"\ndomain = \"d\"\ndescriptor = [\"tenant\"]\n\
             [limits.acme]\nrule = \"9/s\"\ndomain = \"d\"\ndescriptor = [\"tenant\", \"plan=gold\"]\n\
             replaces = [\"all\"]\n",
        );
        let descriptors = Descriptors::new(&limits);
        let (tenant, gold) = (("tenant", "x"), ("plan", "gold"));
        assert_eq!(descriptors.find_all("d", &[&[tenant], &[tenant, gold]]), [None, Some(1)]);
        assert_eq!(descriptors.find_all("d", &[&[tenant], &[gold]]), [Some(0), None]);
    }

    #[test]
    fn keys_are_the_values_of_the_entries() {
        let limits = read(
            "[limits.all]\nrule = \"1/s\"\ndomain = \"d\"\ndescriptor = [\"tenant\", \"path=/v1/*\"]\n\
             [limits.some]\nrule = \"1/s\"\ndomain = \"d\"\ndescriptor = [\"tenant\", \"path\"]\n\
             key = \"descriptor:tenant\"\n\
             [limits.none]\nrule = \"1/s\"\ndomain = \"d\"\ndescriptor = [\"path\"]\n\
             key = \"constant:all\"\n",
        );
        let entries = [("tenant", "a|b"), ("path", "/v1/x")];
        assert_eq!(descriptor_key(&limits[0], &entries), b"a\\|b|/v1/x");
        assert_eq!(descriptor_key(&limits[1], &entries), b"a|b");
        assert_eq!(descriptor_key(&limits[2], &entries[1..]), b"all");
    }
}
