//! Which limit counts an Envoy descriptor, found as Envoy's own service finds it.
//!
//! Always   Entry by entry, from the outermost: the exact value, else the first configured pattern that
//!          matches, else the key alone. There is no way back: an exact value without anything below it hides
//!          the key alone, as it does there.
//!          A limit counts only descriptors with as many entries as its own.

use super::{DescriptorPart, KeyPart, Pattern, key, names_credential};
use crate::config::LimitConfig;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// Maximum number of descriptors of a request.
pub const DESCRIPTORS_MAX: usize = 64;
/// Maximum number of entries of a descriptor.
pub const ENTRIES_MAX: usize = 16;

/// How a descriptor was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// What was chosen for each entry, as far as there was something.
    pub chosen: Vec<Chosen>,
    /// The limit that this leads to: its place in the list.
    pub limit: Option<usize>,
}

/// What was chosen for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// As the configuration has it.
    pub entry: DescriptorPart,
    /// What would have been, without it.
    pub hidden: Vec<DescriptorPart>,
}

/// All descriptors that limits count.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    domains: HashMap<String, Node>,
    /// For each limit, those that do not count where it does.
    replaces: HashMap<usize, Vec<usize>>,
}

/// What may follow an entry.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The limit of the entries that lead here.
    limit: Option<usize>,
    below: HashMap<String, Branches>,
}

/// What may follow, by the value of one key.
#[derive(Clone, Debug, Default)]
struct Branches {
    exact: HashMap<String, Node>,
    /// In the order of the configuration.
    patterns: Vec<(Pattern, Node)>,
    alone: Option<Box<Node>>,
}

impl Descriptors {
    /// Those of these limits. Limits are found as places in this list.
    pub fn new<'a>(limits: impl IntoIterator<Item = &'a LimitConfig>) -> Self {
        let limits: Vec<&LimitConfig> = limits.into_iter().collect();
        let names: HashMap<&str, usize> =
            limits.iter().enumerate().map(|(place, limit)| (limit.name.as_str(), place)).collect();
        let mut descriptors = Self::default();
        for (place, limit) in limits.iter().enumerate() {
            let Some(descriptor) = &limit.descriptor else { continue };
            let mut node = descriptors.domains.entry(descriptor.domain.clone()).or_default();
            for entry in &descriptor.entries {
                node =
                    node.below.entry(entry.key.clone()).or_default().branch(entry.value.as_ref());
            }
            node.limit.get_or_insert(place);
            let replaced = descriptor.replaces.iter().filter_map(|name| names.get(name.as_str()));
            descriptors.replaces.insert(place, replaced.copied().collect());
        }
        descriptors
    }

    /// Whether any limit is of this domain.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The limit that counts this descriptor: its place in the list.
    pub fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<usize> {
        let mut node = self.domains.get(domain)?;
        for (key, value) in entries {
            (_, node) = node.below.get(*key)?.find(value).next()?;
        }
        node.limit.filter(|_| !entries.is_empty())
    }

    /// The same, with what was chosen on the way.
    pub fn follow(&self, domain: &str, entries: &[(&str, &str)]) -> Trail {
        let (mut node, mut chosen) = (self.domains.get(domain), Vec::new());
        for (key, value) in entries {
            let Some(branches) = node.and_then(|node| node.below.get(*key)) else { break };
            let part = |value: Option<&str>| DescriptorPart {
                key: (*key).to_owned(),
                value: value.map(|value| Pattern(value.to_owned())),
            };
            let mut found = branches.find(value);
            let Some((entry, next)) = found.next() else { break };
            let hidden = found.map(|(value, _)| part(value)).collect();
            chosen.push(Chosen { entry: part(entry), hidden });
            node = Some(next);
        }
        Trail { chosen, limit: self.find(domain, entries) }
    }

    /// Of limits that count descriptors of one request, the one that stands in for this one.
    pub fn replacing(&self, found: &[Option<usize>], limit: usize) -> Option<usize> {
        let replaces = |other: &usize| {
            self.replaces.get(other).is_some_and(|replaced| replaced.contains(&limit))
        };
        found.iter().flatten().copied().find(replaces)
    }

    /// The limits that count these descriptors of one request, without those that another of them replaces.
    pub fn find_all(&self, domain: &str, descriptors: &[&[(&str, &str)]]) -> Vec<Option<usize>> {
        let found: Vec<Option<usize>> =
            descriptors.iter().map(|entries| self.find(domain, entries)).collect();
        let replaced: Vec<usize> = found
            .iter()
            .flatten()
            .filter_map(|place| self.replaces.get(place))
            .flatten()
            .copied()
            .collect();
        found.into_iter().map(|place| place.filter(|place| !replaced.contains(place))).collect()
    }
}

impl Branches {
    /// Where this value leads, which is new if nothing has led there before.
    fn branch(&mut self, value: Option<&Pattern>) -> &mut Node {
        match value {
            None => self.alone.get_or_insert_default(),
            Some(value) if !value.has_star() => self.exact.entry(value.0.clone()).or_default(),
            Some(value) => {
                let known = self.patterns.iter().position(|(pattern, _)| pattern == value);
                let place = known.unwrap_or_else(|| {
                    self.patterns.push((value.clone(), Node::default()));
                    self.patterns.len() - 1
                });
                &mut self.patterns[place].1
            }
        }
    }

    /// Where this value leads, by which text of the configuration, and where it would lead without that: the exact
    /// value, then patterns in their order, then the key alone.
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

/// Whom a limit counts in a descriptor: the values of the entries that its key names, or of all of them.
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

impl fmt::Display for DescriptorPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) if names_credential(&self.key) && value.0 != "*" => {
                write!(f, "{}=[redacted]", self.key)
            }
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that count these descriptors of the domain `d`, called `a`, `b`…
    fn limits(descriptors: &[&[&str]]) -> Vec<LimitConfig> {
        let limit = |(place, descriptor): (usize, &&[&str])| {
            let name = ["a", "b", "c", "d", "e"][place];
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
    fn what_was_chosen_says_what_it_hides() {
        let limits = limits(&[&["k"], &["k=a*"], &["k=abc"], &["k", "user"]]);
        let follow = |entries: &[(&str, &str)]| {
            let Trail { chosen, limit } = Descriptors::new(&limits).follow("d", entries);
            let shown = |Chosen { entry, hidden }: &Chosen| {
                let hidden: Vec<String> = hidden.iter().map(ToString::to_string).collect();
                format!("{entry} not {}", hidden.join(", "))
            };
            (chosen.iter().map(shown).collect::<Vec<_>>(), limit)
        };
        assert_eq!(follow(&[("k", "abc")]), (vec!["k=abc not k=a*, k".to_owned()], Some(2)));
        assert_eq!(follow(&[("k", "ab")]), (vec!["k=a* not k".to_owned()], Some(1)));
        let deep = vec!["k not ".to_owned(), "user not ".to_owned()];
        assert_eq!(follow(&[("k", "x"), ("user", "ann")]), (deep, Some(3)));
        let hidden = follow(&[("k", "abc"), ("user", "ann")]);
        assert_eq!(hidden, (vec!["k=abc not k=a*, k".to_owned()], None), "there is no way back");
        assert_eq!(follow(&[("other", "x")]), (Vec::new(), None));
    }

    #[test]
    fn a_limit_counts_only_what_is_as_deep_as_itself() {
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
