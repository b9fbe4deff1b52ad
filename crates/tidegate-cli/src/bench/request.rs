//! The request to send: its bytes, and how to interpret the reply.

use super::target::{Target, Wire};
use super::template::{KEY_MARKER, Template, first_key};
use anyhow::{Context, ensure};
use prost::Message;
use std::fmt::Write;
use tidegate_server::protocol::grpc::proto::{Entry, RateLimitDescriptor, RateLimitRequest};

/// The flags that describe the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestFlags<'a> {
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
pub(super) struct BenchRequest {
    pub(super) template: Template,
    pub(super) meaning: ReplyMeaning,
    /// RESP only: the `AUTH` command that each connection sends first.
    pub(super) greeting: Option<Vec<u8>>,
    /// gRPC only: the header field `authorization`.
    pub(super) authorization: Option<String>,
    /// The request as the report shows it.
    pub(super) text: String,
}

/// How the first number of a RESP reply is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyMeaning {
    /// 0 allows, as in redis-cell.
    ZeroAllows,
    /// 1 allows, as in `TIDE.CHECK`.
    OneAllows,
    /// The command makes no decision.
    Unknown,
}

impl BenchRequest {
    pub(super) fn new(target: &Target, flags: &RequestFlags<'_>) -> anyhow::Result<Self> {
        if let Some(token) = flags.token {
            ensure!(
                token.bytes().all(|byte| byte.is_ascii_graphic()),
                "the token may contain only printable ASCII characters and no blanks"
            );
        }
        match target.wire {
            Wire::Resp => resp(flags),
            Wire::Http => http(target, flags),
            Wire::Grpc => grpc(flags),
        }
    }
}

fn resp(flags: &RequestFlags<'_>) -> anyhow::Result<BenchRequest> {
    ensure!(flags.body.is_none(), "--body needs an HTTP target: http://HOST:PORT");
    refuse_grpc(flags)?;
    let arguments: Vec<String> = match (flags.command, flags.limit.or(flags.rule)) {
        (Some(command), _) => command.split_whitespace().map(str::to_owned).collect(),
        (None, Some(limit)) => ["TIDE.CHECK", limit, KEY_MARKER].map(str::to_owned).to_vec(),
        (None, None) => ["CL.THROTTLE", KEY_MARKER, "15", "30", "60"].map(str::to_owned).to_vec(),
    };
    let name = arguments.first().context("--command is empty")?.to_uppercase();
    let meaning = match name.as_str() {
        "CL.THROTTLE" => ReplyMeaning::ZeroAllows,
        "TIDE.CHECK" | "TIDE.PEEK" | "THROTTLE" => ReplyMeaning::OneAllows,
        _ => ReplyMeaning::Unknown,
    };
    let first: Vec<String> = arguments.iter().map(|text| first_key(text)).collect();
    Ok(BenchRequest {
        template: Template::new(command(&first)),
        meaning,
        greeting: flags.token.map(|token| command(&["AUTH".to_owned(), token.to_owned()])),
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

fn http(target: &Target, flags: &RequestFlags<'_>) -> anyhow::Result<BenchRequest> {
    ensure!(flags.command.is_none(), "--command needs a RESP target: resp://HOST:PORT");
    refuse_grpc(flags)?;
    let body = match (flags.body, flags.limit) {
        (Some(body), _) => body.to_owned(),
        (None, Some(limit)) => serde_json::json!({ "limit": limit, "key": KEY_MARKER }).to_string(),
        (None, None) => {
            let rule = flags.rule.unwrap_or("100/s");
            serde_json::json!({ "rule": rule, "key": KEY_MARKER }).to_string()
        }
    };
    let first = first_key(&body);
    let Target { authority, path, .. } = target;
    let mut request = format!(
        "POST {} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        first_key(path),
        first.len()
    );
    if let Some(token) = flags.token {
        let _ = write!(request, "authorization: Bearer {token}\r\n");
    }
    let _ = write!(request, "\r\n{first}");
    Ok(BenchRequest {
        template: Template::new(request.into_bytes()),
        meaning: ReplyMeaning::Unknown,
        greeting: None,
        authorization: None,
        text: body,
    })
}

fn grpc(flags: &RequestFlags<'_>) -> anyhow::Result<BenchRequest> {
    ensure!(flags.command.is_none(), "--command needs a RESP target: resp://HOST:PORT");
    ensure!(flags.body.is_none(), "--body needs an HTTP target: http://HOST:PORT");
    ensure!(
        flags.limit.is_none() && flags.rule.is_none(),
        "gRPC selects a limit by its descriptor, not with --limit or --rule: use --domain NAME --descriptor KEY={KEY_MARKER}"
    );
    let domain = flags.domain.context("gRPC needs --domain NAME")?;
    ensure!(!flags.descriptor.is_empty(), "gRPC needs --descriptor KEY={KEY_MARKER}");
    let entries: anyhow::Result<Vec<Entry>> =
        flags.descriptor.iter().map(|text| entry(text)).collect();
    let descriptor = RateLimitDescriptor { entries: entries?, ..Default::default() };
    let request = RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![descriptor],
        ..Default::default()
    };
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).context("the descriptor is too long")?;
    let framed = [&[0][..], &length.to_be_bytes(), &message].concat();
    Ok(BenchRequest {
        template: Template::new(framed),
        meaning: ReplyMeaning::Unknown,
        greeting: None,
        authorization: flags.token.map(|token| format!("Bearer {token}")),
        text: format!("{domain}: {}", flags.descriptor.join(", ")),
    })
}

fn entry(text: &str) -> anyhow::Result<Entry> {
    let (key, value) = text.split_once('=').with_context(|| {
        format!("--descriptor `{text}` is not of the form KEY=VALUE, for example user={KEY_MARKER}")
    })?;
    Ok(Entry { key: key.to_owned(), value: first_key(value) })
}

fn refuse_grpc(flags: &RequestFlags<'_>) -> anyhow::Result<()> {
    ensure!(
        flags.domain.is_none() && flags.descriptor.is_empty(),
        "--domain and --descriptor need a gRPC target: grpc://HOST:PORT"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, flags: &RequestFlags<'_>) -> anyhow::Result<BenchRequest> {
        BenchRequest::new(&target.parse().unwrap(), flags)
    }

    fn bytes(target: &str, flags: &RequestFlags<'_>) -> String {
        let mut out = Vec::new();
        request(target, flags).unwrap().template.write(5, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_default_resp_command_is_cl_throttle() {
        assert_eq!(
            bytes("a:1", &RequestFlags::default()),
            "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000000005\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
        );
        let rule = RequestFlags { rule: Some("10/s burst 20"), ..RequestFlags::default() };
        assert_eq!(
            bytes("a:1", &rule),
            "*3\r\n$10\r\nTIDE.CHECK\r\n$13\r\n10/s burst 20\r\n$16\r\nkey:000000000005\r\n"
        );
        let command = RequestFlags { command: Some("get {key}"), ..RequestFlags::default() };
        assert_eq!(bytes("a:1", &command), "*2\r\n$3\r\nget\r\n$16\r\nkey:000000000005\r\n");
        assert_eq!(request("a:1", &command).unwrap().meaning, ReplyMeaning::Unknown);
    }

    #[test]
    fn an_http_request_has_the_length_of_its_body() {
        let flags =
            RequestFlags { limit: Some("a\"b"), token: Some("t"), ..RequestFlags::default() };
        assert_eq!(
            bytes("http://a:1", &flags),
            "POST /v1/check HTTP/1.1\r\nhost: a:1\r\ncontent-type: application/json\r\n\
             content-length: 41\r\nauthorization: Bearer t\r\n\r\n\
             {\"key\":\"key:000000000005\",\"limit\":\"a\\\"b\"}"
        );
    }

    #[test]
    fn grpc_sends_one_descriptor() {
        let descriptor = ["api=search".to_owned(), "user={key}".to_owned()];
        let flags = RequestFlags {
            domain: Some("edge"),
            descriptor: &descriptor,
            ..RequestFlags::default()
        };
        let bytes = bytes("grpc://a:1", &flags).into_bytes();
        let read = RateLimitRequest::decode(&bytes[5..]).unwrap();
        assert_eq!(bytes[..5], [0, 0, 0, 0, u8::try_from(bytes.len() - 5).unwrap()]);
        assert_eq!(read.domain, "edge");
        assert_eq!(read.descriptors[0].entries[1].value, "key:000000000005");
    }

    #[test]
    fn a_flag_of_another_protocol_is_an_error() {
        let command = RequestFlags { command: Some("PING"), ..RequestFlags::default() };
        let body = RequestFlags { body: Some("{}"), ..RequestFlags::default() };
        let domain = RequestFlags { domain: Some("x"), ..RequestFlags::default() };
        let limit = RequestFlags { limit: Some("x"), ..RequestFlags::default() };
        let bad =
            [("http://a:1", command), ("grpc://a:1", command), ("a:1", body), ("a:1", domain)];
        let lacking = [
            ("grpc://a:1", limit),
            ("grpc://a:1", domain),
            ("grpc://a:1", RequestFlags::default()),
        ];
        for (target, flags) in bad.into_iter().chain(lacking) {
            assert!(request(target, &flags).is_err(), "{target} {flags:?}");
        }
        let token = RequestFlags { token: Some("a\r\nb"), ..RequestFlags::default() };
        assert!(request("http://a:1", &token).is_err());
    }
}
