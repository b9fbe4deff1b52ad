//! envoyproxy/ratelimit: a domain, and descriptors in descriptors.
//!
//! Always   A limit for each `rate_limit`, and one that is off for each descriptor that ends without: there it
//!          exempts, and hides what is more general. A limit counts the values of its entries, as there;
//!          entries with `share_threshold` are not part of the key.

use super::rate::{self, RateLimit};
use super::yaml::{self, Node, Yaml, line};
use super::{Imported, LeftOut, toml};
use anyhow::bail;
use std::collections::{HashMap, HashSet};

/// As deep as a limit's descriptor may be.
const ENTRIES_MAX: usize = 16;
/// As long as a limit's name may be, with room for a number.
const NAME_BYTES_MAX: usize = 56;

/// Keys of a descriptor that change what is measured or answered, and not what is counted.
const NOT_OURS: [&str; 4] = ["quota_mode", "detailed_metric", "value_to_metric", "metadata"];

/// An entry on the way to a limit.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Option<String>,
    is_shared: bool,
}

/// A limit to be written.
#[derive(Debug)]
struct Draft {
    line: u64,
    path: Vec<Entry>,
    /// None for a descriptor that ends without one.
    rate_limit: Option<RateLimit>,
    is_shadow: bool,
}

/// A descriptor as it is read.
#[derive(Default)]
struct Descriptor<'a> {
    key: Option<&'a str>,
    value: Option<&'a str>,
    rate_limit: Option<&'a Node>,
    below: Option<&'a Node>,
    is_shadow: bool,
    is_shared: bool,
    /// What it counts cannot be said, so that nothing can be said about what is in it.
    is_lost: bool,
}

#[derive(Default)]
struct Reader {
    drafts: Vec<Draft>,
    seen: HashSet<Vec<(String, Option<String>)>>,
    left_out: Vec<LeftOut>,
}

pub(super) fn import(text: &str) -> anyhow::Result<Imported> {
    let document = yaml::read(text)?;
    let Yaml::Map(entries) = &document.value else { bail!("it is not a map with a `domain`") };
    let mut reader = Reader::default();
    let (mut domain, mut descriptors) = (None, None);
    for (key, value) in entries {
        match (key.value.as_str(), &value.value) {
            ("domain", Yaml::Text(text)) if !text.is_empty() => domain = Some(text),
            ("descriptors", _) => descriptors = Some(value),
            (other, _) => reader.leave_out(line(key), unknown(other, "the file")),
        }
    }
    let Some(domain) = domain else { bail!("it has no `domain`") };
    if let Some(descriptors) = descriptors {
        reader.descriptors(descriptors, &[]);
    }
    Ok(reader.write(domain))
}

fn unknown(key: &str, place: &str) -> String {
    format!("unknown key or value: `{}` in {place}", key.escape_debug())
}

impl Reader {
    fn leave_out(&mut self, line: u64, why: impl Into<String>) {
        self.left_out.push(LeftOut { line, why: why.into() });
    }

    fn descriptors(&mut self, node: &Node, path: &[Entry]) {
        match &node.value {
            Yaml::List(list) => list.iter().for_each(|node| self.descriptor(node, path)),
            Yaml::Null => {}
            _ => self.leave_out(line(node), "`descriptors` is not a list"),
        }
    }

    fn descriptor(&mut self, node: &Node, path: &[Entry]) {
        let Yaml::Map(entries) = &node.value else {
            return self.leave_out(line(node), "a descriptor is not a map");
        };
        let mut read = Descriptor::default();
        for (key, value) in entries {
            if let Err(why) = read.take(&key.value, value) {
                self.leave_out(line(key), why);
            }
        }
        if read.is_lost {
            return;
        }
        let entry = match read.entry() {
            Ok(entry) => entry,
            Err(why) => return self.leave_out(line(node), why),
        };
        let path: Vec<Entry> = path.iter().cloned().chain([entry]).collect();
        if path.len() > ENTRIES_MAX {
            return self.leave_out(line(node), format!("more than {ENTRIES_MAX} entries deep"));
        }
        let plain = path.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
        if !self.seen.insert(plain) {
            return self.leave_out(line(node), "the same descriptor stands above");
        }
        self.draft(node, &path, &read);
        if let Some(below) = read.below {
            self.descriptors(below, &path);
        }
    }

    fn draft(&mut self, node: &Node, path: &[Entry], read: &Descriptor<'_>) {
        let rate_limit = match read.rate_limit {
            Some(rate_limit) => match rate::read(rate_limit, &mut self.left_out) {
                Some(rate_limit) => Some(rate_limit),
                None => return,
            },
            None if read.below.is_some() => return,
            None => None,
        };
        let (line, path, is_shadow) = (line(node), path.to_vec(), read.is_shadow);
        self.drafts.push(Draft { line, path, rate_limit, is_shadow });
    }

    fn write(mut self, domain: &str) -> Imported {
        let names = names(&self.drafts);
        let mut by_envoys_name: HashMap<&str, Vec<&str>> = HashMap::new();
        for (draft, name) in self.drafts.iter().zip(&names) {
            if let Some(envoys) = draft.envoys_name() {
                by_envoys_name.entry(envoys).or_default().push(name);
            }
        }
        let mut written =
            toml::comment(&format!("From Envoy's rate limits of the domain {domain}."));
        let mut left_out = Vec::new();
        for (draft, name) in self.drafts.iter().zip(&names) {
            let replaces = draft.replaced(name, &by_envoys_name, &mut left_out);
            written += &draft.write(name, domain, &replaces, &mut left_out);
        }
        self.left_out.append(&mut left_out);
        self.left_out.sort_by_key(|left_out| left_out.line);
        Imported { toml: written, left_out: self.left_out }
    }
}

impl<'a> Descriptor<'a> {
    fn take(&mut self, key: &str, value: &'a Node) -> Result<(), String> {
        match (key, &value.value) {
            ("key", Yaml::Text(text)) => self.key = Some(text),
            ("value", Yaml::Text(text)) => self.value = Some(text),
            ("value", Yaml::Null) | ("rate_limit", Yaml::Null) => {}
            ("rate_limit", _) => self.rate_limit = Some(value),
            ("descriptors", _) => self.below = Some(value),
            ("shadow_mode", Yaml::Flag(flag)) => self.is_shadow = *flag,
            ("share_threshold", Yaml::Flag(flag)) => self.is_shared = *flag,
            (key, Yaml::Flag(false)) if NOT_OURS.contains(&key) => {}
            (key, _) if NOT_OURS.contains(&key) => return Err(format!("`{key}` has no like here")),
            ("key" | "value", _) => {
                self.is_lost = true;
                return Err(format!("this `{key}` is not a text, so the descriptor is left out"));
            }
            (key, _) => return Err(unknown(key, "a descriptor")),
        }
        Ok(())
    }

    fn entry(&self) -> Result<Entry, String> {
        let key = self.key.filter(|key| !key.is_empty()).ok_or("the descriptor has no key")?;
        if key.contains('=') {
            return Err("the key has a `=`".to_owned());
        }
        let value = self.value.filter(|value| !value.is_empty());
        if self.is_shared && !value.is_some_and(|value| value.contains('*')) {
            return Err("`share_threshold` is for values with `*`".to_owned());
        }
        let (key, value) = (key.to_owned(), value.map(str::to_owned));
        Ok(Entry { key, value, is_shared: self.is_shared })
    }
}

impl Entry {
    /// As our configuration has it.
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

    /// Our names of the limits that it replaces.
    fn replaced(
        &self,
        name: &str,
        by_envoys_name: &HashMap<&str, Vec<&str>>,
        left_out: &mut Vec<LeftOut>,
    ) -> Vec<String> {
        let mut replaced = Vec::new();
        for (line, envoys) in self.rate_limit.iter().flat_map(|limit| &limit.replaces) {
            let others = by_envoys_name.get(envoys.as_str()).into_iter().flatten();
            let others: Vec<&str> = others.copied().filter(|other| *other != name).collect();
            if others.is_empty() {
                let why = format!("no other limit is named `{}`", envoys.escape_debug());
                left_out.push(LeftOut { line: *line, why });
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
        left_out: &mut Vec<LeftOut>,
    ) -> String {
        let descriptor: Vec<String> = self.path.iter().map(Entry::text).collect();
        let original = self.rate_limit.as_ref().map_or("no limit", |limit| &limit.original);
        let rule = self.rate_limit.as_ref().and_then(|limit| limit.rule.as_deref());
        let mode = match (rule, self.is_shadow) {
            (None, _) => "mode = \"off\"\n",
            (Some(_), true) => "mode = \"shadow\"\n",
            (Some(_), false) => "",
        };
        let mut written = format!("\n[limits.{}]\n", toml::key(name));
        let line = format!("line {}: {}, {original}", self.line, descriptor.join(" > "));
        written.insert_str(1, &toml::comment(&line));
        written += &format!("rule = {}\n{mode}", toml::quoted(rule.unwrap_or("1/s fixed")));
        written += &format!("domain = {}\n", toml::quoted(domain));
        written += &format!("descriptor = {}\n", toml::list(&descriptor));
        match self.key() {
            Ok(None) => {}
            Ok(Some(key)) => written += &format!("key = {}\n", toml::list(&key)),
            Err(why) => left_out.push(LeftOut { line: self.line, why }),
        }
        if !replaces.is_empty() {
            written += &format!("replaces = {}\n", toml::list(replaces));
        }
        written
    }

    /// What is counted, if it is not the values of all entries.
    fn key(&self) -> Result<Option<Vec<String>>, String> {
        if !self.path.iter().any(|entry| entry.is_shared) {
            return Ok(None);
        }
        let own: Vec<&Entry> = self.path.iter().filter(|entry| !entry.is_shared).collect();
        let is_twice = |entry: &&Entry| self.path.iter().filter(|e| e.key == entry.key).count() > 1;
        if own.iter().any(is_twice) {
            return Err("`share_threshold` with a key that comes twice".to_owned());
        }
        if own.is_empty() {
            return Ok(Some(vec!["constant:all".to_owned()]));
        }
        Ok(Some(own.iter().map(|entry| format!("descriptor:{}", entry.key)).collect()))
    }
}

/// A name for each: Envoy's, or what its entries say; with a number, if it is taken.
fn names(drafts: &[Draft]) -> Vec<String> {
    let (mut taken, mut last_number) = (HashSet::new(), HashMap::new());
    let mut unique = |draft: &Draft| {
        let path = || draft.path.iter().map(|e| slug(&e.text())).collect::<Vec<_>>().join("_");
        let mut wished = draft.envoys_name().map_or_else(path, slug);
        wished.truncate(NAME_BYTES_MAX);
        let mut name = wished.clone();
        while !taken.insert(name.clone()) {
            let number = last_number.entry(wished.clone()).or_insert(1);
            *number += 1;
            name = format!("{wished}-{number}");
        }
        name
    };
    drafts.iter().map(&mut unique).collect()
}

/// Letters, digits and `-`, with one `_` for whatever stands between them.
fn slug(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words: Vec<&str> = text.split(|c| !is_plain(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "limit".to_owned() } else { words.join("_") }
}
