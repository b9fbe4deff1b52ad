//! Translates the configuration of envoyproxy/ratelimit: a domain with nested descriptors.
//!
//! Always   Each `rate_limit` becomes a limit. A leaf descriptor without one becomes a limit with `mode = "off"`,
//!          because it exempts requests and takes precedence over more general descriptors. A limit counts by the
//!          values of its entries; entries with `share_threshold` are not part of the key.

use super::rate::{self, RateLimit};
use super::yaml::{self, Node, Yaml, line};
use super::{Translation, Untranslated, toml};
use anyhow::bail;
use std::collections::{HashMap, HashSet};

/// Maximum number of entries in a descriptor.
const ENTRIES_MAX: usize = 16;
/// Maximum length of a limit's name, less the space for a number.
const NAME_BYTES_MAX: usize = 56;

/// Keys of a descriptor that change metrics or responses, and not what is counted.
const IGNORED_KEYS: [&str; 4] = ["quota_mode", "detailed_metric", "value_to_metric", "metadata"];

/// An entry of a limit's descriptor.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Option<String>,
    is_shared: bool,
}

/// A limit to write.
#[derive(Debug)]
struct Draft {
    line: u64,
    path: Vec<Entry>,
    /// `None` for a leaf descriptor without one.
    rate_limit: Option<RateLimit>,
    is_shadow: bool,
}

/// A descriptor while it is read.
#[derive(Default)]
struct Descriptor<'a> {
    key: Option<&'a str>,
    value: Option<&'a str>,
    rate_limit: Option<&'a Node>,
    below: Option<&'a Node>,
    is_shadow: bool,
    is_shared: bool,
    /// Its key or value is invalid, so that nested descriptors cannot be translated either.
    is_lost: bool,
}

#[derive(Default)]
struct Reader {
    drafts: Vec<Draft>,
    seen: HashSet<Vec<(String, Option<String>)>>,
    untranslated: Vec<Untranslated>,
}

pub(super) fn import(text: &str) -> anyhow::Result<Translation> {
    let document = yaml::read(text)?;
    let Yaml::Map(entries) = &document.value else {
        bail!("the file is not a map with a `domain`")
    };
    let mut reader = Reader::default();
    let (mut domain, mut descriptors) = (None, None);
    for (key, value) in entries {
        match (key.value.as_str(), &value.value) {
            ("domain", Yaml::Text(text)) if !text.is_empty() => domain = Some(text),
            ("descriptors", _) => descriptors = Some(value),
            (other, _) => reader.report(line(key), unknown(other, "the file")),
        }
    }
    let Some(domain) = domain else { bail!("the file has no `domain`") };
    if let Some(descriptors) = descriptors {
        reader.descriptors(descriptors, &[]);
    }
    Ok(reader.write(domain))
}

fn unknown(key: &str, place: &str) -> String {
    format!("unknown key or value: `{}` in {place}", key.escape_debug())
}

impl Reader {
    fn report(&mut self, line: u64, why: impl Into<String>) {
        self.untranslated.push(Untranslated { line, why: why.into() });
    }

    fn descriptors(&mut self, node: &Node, path: &[Entry]) {
        match &node.value {
            Yaml::List(list) => list.iter().for_each(|node| self.descriptor(node, path)),
            Yaml::Null => {}
            _ => self.report(line(node), "`descriptors` is not a list"),
        }
    }

    fn descriptor(&mut self, node: &Node, path: &[Entry]) {
        let Yaml::Map(entries) = &node.value else {
            return self.report(line(node), "a descriptor is not a map");
        };
        let mut read = Descriptor::default();
        for (key, value) in entries {
            if let Err(why) = read.take(&key.value, value) {
                self.report(line(key), why);
            }
        }
        if read.is_lost {
            return;
        }
        let entry = match read.entry() {
            Ok(entry) => entry,
            Err(why) => return self.report(line(node), why),
        };
        let path: Vec<Entry> = path.iter().cloned().chain([entry]).collect();
        if path.len() > ENTRIES_MAX {
            return self.report(line(node), format!("nested more than {ENTRIES_MAX} entries deep"));
        }
        let plain = path.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
        if !self.seen.insert(plain) {
            return self.report(line(node), "the same descriptor was defined above");
        }
        self.draft(node, &path, &read);
        if let Some(below) = read.below {
            self.descriptors(below, &path);
        }
    }

    fn draft(&mut self, node: &Node, path: &[Entry], read: &Descriptor<'_>) {
        let rate_limit = match read.rate_limit {
            Some(rate_limit) => match rate::read(rate_limit, &mut self.untranslated) {
                Some(rate_limit) => Some(rate_limit),
                None => return,
            },
            None if read.below.is_some() => return,
            None => None,
        };
        let (line, path, is_shadow) = (line(node), path.to_vec(), read.is_shadow);
        self.drafts.push(Draft { line, path, rate_limit, is_shadow });
    }

    fn write(mut self, domain: &str) -> Translation {
        let names = names(&self.drafts);
        let mut by_envoys_name: HashMap<&str, Vec<&str>> = HashMap::new();
        for (draft, name) in self.drafts.iter().zip(&names) {
            if let Some(envoys) = draft.envoys_name() {
                by_envoys_name.entry(envoys).or_default().push(name);
            }
        }
        let mut written =
            toml::comment(&format!("From Envoy's rate limits of the domain {domain}."));
        let mut untranslated = Vec::new();
        for (draft, name) in self.drafts.iter().zip(&names) {
            let replaces = draft.replaced(name, &by_envoys_name, &mut untranslated);
            written += &draft.write(name, domain, &replaces, &mut untranslated);
        }
        self.untranslated.append(&mut untranslated);
        self.untranslated.sort_by_key(|untranslated| untranslated.line);
        Translation { toml: written, untranslated: self.untranslated }
    }
}

impl<'a> Descriptor<'a> {
    fn take(&mut self, key: &str, value: &'a Node) -> Result<(), String> {
        match (key, &value.value) {
            ("key", Yaml::Text(text)) => self.key = Some(text),
            ("value", Yaml::Text(text)) => self.value = Some(text),
            ("value" | "rate_limit", Yaml::Null) => {}
            ("rate_limit", _) => self.rate_limit = Some(value),
            ("descriptors", _) => self.below = Some(value),
            ("shadow_mode", Yaml::Flag(flag)) => self.is_shadow = *flag,
            ("share_threshold", Yaml::Flag(flag)) => self.is_shared = *flag,
            (key, Yaml::Flag(false)) if IGNORED_KEYS.contains(&key) => {}
            (key, _) if IGNORED_KEYS.contains(&key) => {
                return Err(format!("`{key}` has no equivalent in tidegate"));
            }
            ("key" | "value", _) => {
                self.is_lost = true;
                return Err(format!("this `{key}` is not a string, so the descriptor is skipped"));
            }
            (key, _) => return Err(unknown(key, "a descriptor")),
        }
        Ok(())
    }

    fn entry(&self) -> Result<Entry, String> {
        let key = self.key.filter(|key| !key.is_empty()).ok_or("the descriptor has no key")?;
        if key.contains('=') {
            return Err("the key contains `=`".to_owned());
        }
        let value = self.value.filter(|value| !value.is_empty());
        if self.is_shared && !value.is_some_and(|value| value.contains('*')) {
            return Err("`share_threshold` needs a value with `*`".to_owned());
        }
        let (key, value) = (key.to_owned(), value.map(str::to_owned));
        Ok(Entry { key, value, is_shared: self.is_shared })
    }
}

impl Entry {
    /// Returns the entry as a tidegate configuration writes it.
    fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }
}

impl Draft {
    fn envoys_name(&self) -> Option<&str> {
        self.rate_limit.as_ref()?.name.as_deref()
    }

    /// Returns the tidegate names of the limits that it replaces.
    fn replaced(
        &self,
        name: &str,
        by_envoys_name: &HashMap<&str, Vec<&str>>,
        untranslated: &mut Vec<Untranslated>,
    ) -> Vec<String> {
        let mut replaced = Vec::new();
        for (line, envoys) in self.rate_limit.iter().flat_map(|limit| &limit.replaces) {
            let others = by_envoys_name.get(envoys.as_str()).into_iter().flatten();
            let others: Vec<&str> = others.copied().filter(|other| *other != name).collect();
            if others.is_empty() {
                let why = format!("no other limit is named `{}`", envoys.escape_debug());
                untranslated.push(Untranslated { line: *line, why });
            }
            replaced.extend(others.into_iter().map(str::to_owned));
        }
        replaced
    }

    fn write(
        &self,
        name: &str,
        domain: &str,
        replaces: &[String],
        untranslated: &mut Vec<Untranslated>,
    ) -> String {
        let descriptor: Vec<String> = self.path.iter().map(Entry::text).collect();
        let original = self.rate_limit.as_ref().map_or("no limit", |limit| &limit.original);
        let rule = self.rate_limit.as_ref().and_then(|limit| limit.rule.as_deref());
        let comment = format!("line {}: {}, {original}", self.line, descriptor.join(" > "));
        let mut lines = vec![
            format!("\n{}[limits.{}]", toml::comment(&comment), toml::key(name)),
            format!("rule = {}", toml::quoted(rule.unwrap_or("1/s fixed"))),
        ];
        match (rule, self.is_shadow) {
            (None, _) => lines.push("mode = \"off\"".to_owned()),
            (Some(_), true) => lines.push("mode = \"shadow\"".to_owned()),
            (Some(_), false) => {}
        }
        lines.push(format!("domain = {}", toml::quoted(domain)));
        lines.push(format!("descriptor = {}", toml::list(&descriptor)));
        match self.key() {
            Ok(None) => {}
            Ok(Some(key)) => lines.push(format!("key = {}", toml::list(&key))),
            Err(why) => untranslated.push(Untranslated { line: self.line, why }),
        }
        if !replaces.is_empty() {
            lines.push(format!("replaces = {}", toml::list(replaces)));
        }
        lines.join("\n") + "\n"
    }

    /// Returns the key, or `None` if it is the default: the values of all entries.
    fn key(&self) -> Result<Option<Vec<String>>, String> {
        if !self.path.iter().any(|entry| entry.is_shared) {
            return Ok(None);
        }
        let own: Vec<&Entry> = self.path.iter().filter(|entry| !entry.is_shared).collect();
        let is_twice = |entry: &&Entry| self.path.iter().filter(|e| e.key == entry.key).count() > 1;
        if own.iter().any(is_twice) {
            return Err(
                "`share_threshold` is not supported with a key that occurs twice".to_owned()
            );
        }
        if own.is_empty() {
            return Ok(Some(vec!["constant:all".to_owned()]));
        }
        Ok(Some(own.iter().map(|entry| format!("descriptor:{}", entry.key)).collect()))
    }
}

/// Names each limit after Envoy's name or its entries, with a number if the name is taken.
fn names(drafts: &[Draft]) -> Vec<String> {
    let (mut taken, mut last_number) = (HashSet::new(), HashMap::new());
    let mut unique = |draft: &Draft| {
        let path = || draft.path.iter().map(|e| slug(&e.text())).collect::<Vec<_>>().join("_");
        let mut preferred = draft.envoys_name().map_or_else(path, slug);
        preferred.truncate(NAME_BYTES_MAX);
        let mut name = preferred.clone();
        while !taken.insert(name.clone()) {
            let number = last_number.entry(preferred.clone()).or_insert(1);
            *number += 1;
            name = format!("{preferred}-{number}");
        }
        name
    };
    drafts.iter().map(&mut unique).collect()
}

/// Keeps letters, digits and `-`, and replaces each run of other characters by `_`.
fn slug(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words: Vec<&str> = text.split(|c| !is_plain(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "limit".to_owned() } else { words.join("_") }
}
