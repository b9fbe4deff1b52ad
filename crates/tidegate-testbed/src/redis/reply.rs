//! Replies of Redis, in RESP2.

use std::io::{self, BufRead, Error, ErrorKind};

/// The maximum length of strings in Redis, by default.
const BULK_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(String),
    /// `-ERR …`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// Null.
    Nil,
    /// An array.
    Array(Vec<Reply>),
}

impl Reply {
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let line = line(from)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
        match kind {
            "+" => Ok(Self::Simple(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => Ok(Self::Integer(rest.parse().map_err(|_| malformed(&line))?)),
            "$" | "*" if rest == "-1" => Ok(Self::Nil),
            "$" => bulk(from, rest.parse().map_err(|_| malformed(&line))?),
            "*" => {
                let count: u32 = rest.parse().map_err(|_| malformed(&line))?;
                let items: io::Result<_> = (0..count).map(|_| Self::read(from)).collect();
                Ok(Self::Array(items?))
            }
            _ => Err(malformed(&line)),
        }
    }

    /// Returns a string, an error or a number as text; empty for anything else.
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// Returns the elements; empty if it is not an array.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns whether it is `OK`.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Simple(text) if text == "OK")
    }

    /// Returns a value by its name: after `name:` on a line, as in the reply to `INFO`, or the next element of an array, as
    /// in the reply to `CONFIG GET`.
    pub fn field(&self, name: &str) -> Option<String> {
        if let Self::Array(items) = self {
            let pairs = items.chunks_exact(2);
            return pairs
                .into_iter()
                .find(|pair| pair[0].text() == name)
                .map(|pair| pair[1].text());
        }
        let text = self.text();
        let named = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        text.lines().find_map(named)
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(Error::new(ErrorKind::UnexpectedEof, format!("incomplete reply: {line:?}"))),
    }
}

fn bulk(from: &mut impl BufRead, bytes: u64) -> io::Result<Reply> {
    if bytes > BULK_BYTES_MAX {
        return Err(malformed(&format!("${bytes}")));
    }
    let mut value = vec![0; usize::try_from(bytes).map_err(Error::other)?];
    from.read_exact(&mut value)?;
    let mut end = [0; 2];
    from.read_exact(&mut end)?;
    if &end == b"\r\n" { Ok(Reply::Bulk(value)) } else { Err(malformed("after a bulk")) }
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not a RESP2 reply: {what:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut text: &[u8]) -> io::Result<Reply> {
        Reply::read(&mut text)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let text = b"*6\r\n+OK\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n$-1\r\n*0\r\n";
        let expected = Reply::Array(vec![
            Reply::Simple("OK".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Integer(-7),
            Reply::Bulk(b"\r\n".to_vec()),
            Reply::Nil,
            Reply::Array(Vec::new()),
        ]);
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn an_incomplete_reply_is_an_error() {
        for text in ["", "+OK", ":1\r", "$5\r\nhell", "*2\r\n:1\r\n"] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{text:?}");
        }
    }

    #[test]
    fn a_malformed_reply_is_an_error() {
        for text in ["\r\n", "?\r\n", ":x\r\n", "$-2\r\n", "$1\r\nabc", "$536870913\r\n"] {
            let error = read(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{text:?}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = Reply::Bulk(b"# Replication\r\nrole:master\r\nrole_old:slave\r\n".to_vec());
        assert_eq!(info.field("role"), Some("master".to_owned()));
        assert_eq!(info.field("rol"), None);
        let words = ["save", "dir", "dir", "here"].map(|word| Reply::Bulk(word.into()));
        assert_eq!(Reply::Array(words.to_vec()).field("dir"), Some("here".to_owned()));
    }
}
