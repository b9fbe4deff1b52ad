//! Parses YAML into a tree whose nodes have line numbers.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// A value and its position.
pub(super) type Node = Spanned<Yaml>;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Yaml {
    Null,
    Flag(bool),
    Whole(u64),
    /// A number of any other kind.
    Number,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

/// Parses one document. The library caps the expansion of anchors.
pub(super) fn read(text: &str) -> Result<Node, serde_saphyr::Error> {
    serde_saphyr::from_str(text)
}

/// Returns the line of a node.
pub(super) fn line<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Yaml, E> {
        Ok(Yaml::Flag(flag))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Yaml, E> {
        Ok(Yaml::Whole(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Yaml, E> {
        Ok(u64::try_from(number).map_or(Yaml::Number, Yaml::Whole))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Yaml, E> {
        Ok(Yaml::Number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Yaml, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Yaml, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Yaml::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Yaml::Map(entries))
    }
}
