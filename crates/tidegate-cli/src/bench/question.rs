//! What is asked: the bytes of a request on its wire, and what its answer means.

use super::target::{Target, Wire};
use super::template::{PLACE, Template, first_key};
use anyhow::{Context, ensure};
use prost::Message;
use std::fmt::Write;
use tidegate_server::protocol::grpc::proto::{Entry, RateLimitDescriptor, RateLimitRequest};

/// What the command line says of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words<'a> {
    pub(super) limit: Option<&'a str>,
    pub(super) rule: Option<&'a str>,
    pub(super) command: Option<&'a str>,
    pub(super) body: Option<&'a str>,
    pub(super) domain: Option<&'a str>,
    pub(super) descriptor: &'a [String],
    pub(super) token: Option<&'a str>,
}

/// A request for any key.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) request: Template,
    pub(super) meaning: Meaning,
    /// What a connection says first, and is answered with `+OK`; only over RESP.
    pub(super) greeting: Option<Vec<u8>>,
    /// `authorization`, over gRPC.
    pub(super) authorization: Option<String>,
    /// How it is shown.
    pub(super) text: String,
}

/// What the first number of an answer over RESP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// 0 lets it pass, as in redis-cell.
    ZeroAllows,
    /// 1 lets it pass, as in `TIDE.CHECK`.
    OneAllows,
    /// Nothing: it is another command.
    Unknown,
}

impl Question {
    pub(super) fn new(target: &Target, words: &Words<'_>) -> anyhow::Result<Self> {
        if let Some(token) = words.token {
            ensure!(token.bytes().all(|byte| byte.is_ascii_graphic()), "the token is no token");
        }
        match target.wire {
            Wire::Resp => resp(words),
            Wire::Http => http(target, words),
            Wire::Grpc => grpc(words),
        }
    }
}

fn resp(words: &Words<'_>) -> anyhow::Result<Question> {
    ensure!(words.body.is_none(), "--body is of HTTP: write http://HOST:PORT");
    refuse_grpc(words)?;
    let arguments: Vec<String> = match (words.command, words.limit.or(words.rule)) {
        (Some(command), _) => command.split_whitespace().map(str::to_owned).collect(),
        (None, Some(limit)) => ["TIDE.CHECK", limit, PLACE].map(str::to_owned).to_vec(),
        (None, None) => ["CL.THROTTLE", PLACE, "15", "30", "60"].map(str::to_owned).to_vec(),
    };
    let name = arguments.first().context("--command is empty")?.to_uppercase();
    let meaning = match name.as_str() {
        "CL.THROTTLE" => Meaning::ZeroAllows,
        "TIDE.CHECK" | "TIDE.PEEK" | "THROTTLE" => Meaning::OneAllows,
        _ => Meaning::Unknown,
    };
    let first: Vec<String> = arguments.iter().map(|text| first_key(text)).collect();
    Ok(Question {
        request: Template::new(command(&first)),
        meaning,
        greeting: words.token.map(|token| command(&["AUTH".to_owned(), token.to_owned()])),
        authorization: None,
        text: arguments.join(" "),
    })
}

fn command(arguments: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        let _ = write!(bytes, "${}\r\n{argument}\r\n", argument.len());
    }
    bytes.into_bytes()
}

fn http(target: &Target, words: &Words<'_>) -> anyhow::Result<Question> {
    ensure!(words.command.is_none(), "--command is of RESP: write resp://HOST:PORT");
    refuse_grpc(words)?;
    let body = match (words.body, words.limit) {
        (Some(body), _) => body.to_owned(),
        (None, Some(limit)) => serde_json::json!({ "limit": limit, "key": PLACE }).to_string(),
        (None, None) => {
            let rule = words.rule.unwrap_or("100/s");
            serde_json::json!({ "rule": rule, "key": PLACE }).to_string()
        }
    };
    let first = first_key(&body);
    let Target { authority, path, .. } = target;
    let mut request = format!(
        "POST {} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        first_key(path),
        first.len()
    );
    if let Some(token) = words.token {
        let _ = write!(request, "authorization: Bearer {token}\r\n");
    }
    let _ = write!(request, "\r\n{first}");
    Ok(Question {
        request: Template::new(request.into_bytes()),
        meaning: Meaning::Unknown,
        greeting: None,
        authorization: None,
        text: body,
    })
}

fn grpc(words: &Words<'_>) -> anyhow::Result<Question> {
    ensure!(words.command.is_none(), "--command is of RESP: write resp://HOST:PORT");
    ensure!(words.body.is_none(), "--body is of HTTP: write http://HOST:PORT");
    ensure!(
        words.limit.is_none() && words.rule.is_none(),
        "over gRPC a limit is found by its descriptor: --domain NAME --descriptor KEY={PLACE}"
    );
    let domain = words.domain.context("gRPC needs --domain NAME")?;
    ensure!(!words.descriptor.is_empty(), "gRPC needs --descriptor KEY={PLACE}");
    let entries: anyhow::Result<Vec<Entry>> =
        words.descriptor.iter().map(|text| entry(text)).collect();
    let descriptor = RateLimitDescriptor { entries: entries?, ..Default::default() };
    let request = RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    };
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).context("the descriptor is too long")?;
    let framed = [&[0][..], &length.to_be_bytes(), &message].concat();
    Ok(Question {
        request: Template::new(framed),
        meaning: Meaning::Unknown,
        greeting: None,
        authorization: words.token.map(|token| format!("Bearer {token}")),
        text: format!("{domain}: {}", words.descriptor.join(", ")),
    })
}

fn entry(text: &str) -> anyhow::Result<Entry> {
    let (key, value) = text
        .split_once('=')
        .with_context(|| format!("--descriptor `{text}` is no KEY=VALUE, such as user={PLACE}"))?;
    Ok(Entry { key: key.to_owned(), value: first_key(value) })
}

fn refuse_grpc(words: &Words<'_>) -> anyhow::Result<()> {
    ensure!(
        words.domain.is_none() && words.descriptor.is_empty(),
        "--domain and --descriptor are of gRPC: write grpc://HOST:PORT"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(target: &str, words: &Words<'_>) -> anyhow::Result<Question> {
        Question::new(&target.parse().unwrap(), words)
    }

    fn bytes(target: &str, words: &Words<'_>) -> String {
        let mut out = Vec::new();
        question(target, words).unwrap().request.write(5, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn resp_asks_cl_throttle_unless_told() {
        assert_eq!(
            bytes("a:1", &Words::default()),
            "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000000005\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
        );
        let rule = Words { rule: Some("10/s burst 20"), ..Words::default() };
        assert_eq!(
            bytes("a:1", &rule),
            "*3\r\n$10\r\nTIDE.CHECK\r\n$13\r\n10/s burst 20\r\n$16\r\nkey:000000000005\r\n"
        );
        let command = Words { command: Some("get {key}"), ..Words::default() };
        assert_eq!(bytes("a:1", &command), "*2\r\n$3\r\nget\r\n$16\r\nkey:000000000005\r\n");
        assert_eq!(question("a:1", &command).unwrap().meaning, Meaning::Unknown);
    }

    #[test]
    fn http_says_how_long_its_body_is() {
        let words = Words { limit: Some("a\"b"), token: Some("t"), ..Words::default() };
        assert_eq!(
            bytes("http://a:1", &words),
            "POST /v1/check HTTP/1.1\r\nhost: a:1\r\ncontent-type: application/json\r\n\
             content-length: 41\r\nauthorization: Bearer t\r\n\r\n\
             {\"key\":\"key:000000000005\",\"limit\":\"a\\\"b\"}"
        );
    }

    #[test]
    fn grpc_sends_one_descriptor() {
        let descriptor = ["api=search".to_owned(), "user={key}".to_owned()];
        let words = Words { domain: Some("edge"), descriptor: &descriptor, ..Words::default() };
        let bytes = bytes("grpc://a:1", &words).into_bytes();
        let read = RateLimitRequest::decode(&bytes[5..]).unwrap();
        assert_eq!(bytes[..5], [0, 0, 0, 0, u8::try_from(bytes.len() - 5).unwrap()]);
        assert_eq!(read.domain, "edge");
        assert_eq!(read.descriptors[0].entries[1].value, "key:000000000005");
    }

    #[test]
    fn a_flag_of_another_wire_is_refused() {
        let command = Words { command: Some("PING"), ..Words::default() };
        let body = Words { body: Some("{}"), ..Words::default() };
        let domain = Words { domain: Some("x"), ..Words::default() };
        let limit = Words { limit: Some("x"), ..Words::default() };
        let bad =
            [("http://a:1", command), ("grpc://a:1", command), ("a:1", body), ("a:1", domain)];
        let lacking =
            [("grpc://a:1", limit), ("grpc://a:1", domain), ("grpc://a:1", Words::default())];
        for (target, words) in bad.into_iter().chain(lacking) {
            assert!(question(target, &words).is_err(), "{target} {words:?}");
        }
        let token = Words { token: Some("a\r\nb"), ..Words::default() };
        assert!(question("http://a:1", &token).is_err());
    }
}
