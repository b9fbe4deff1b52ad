//! Envoy's rate limit messages, version 3, as they are on the wire.
//!
//! Always   Names and numbers are Envoy's (1.40), whatever our own words are. Written by hand: a build must need
//!          neither protoc nor Envoy's sources. Fields that we never fill in are here too, so that what others
//!          send can be read whole.
//!
//! What comes in is read by [`Request`](super::Request), which takes no more memory than it is told to; these
//! say what it must be able to read.

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// Whose descriptors these are.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is asked about.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// What the request costs; 0 is 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// What it says, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that takes the place of what is configured.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// What it costs, if not what the request does; 0 asks without charging.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the cost is given back instead of taken. Envoy 1.38 and later.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Entry {
    /// What is told.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it is.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `RateLimitDescriptor.RateLimitOverride`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct RateLimitOverride {
    /// So many in each unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// `envoy.type.v3.RateLimitUnit`: the numbers are those of [`Unit`].
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// So many units together; 1 if not said. Envoy 1.40 and later.
    #[prost(message, optional, tag = "3")]
    pub unit_multiplier: Option<u32>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// All descriptors together.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// Each descriptor, in the order asked.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// For who sent the request.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// For who serves it.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    /// What who is denied reads.
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: bytes::Bytes,
    /// For Envoy's other filters and its access log.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<prost_types::Struct>,
    /// Not implemented by Envoy.
    #[prost(message, optional, tag = "7")]
    pub quota: Option<Quota>,
}

/// `RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// What was decided.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Under which limit, if any.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// How much more would be admitted now.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// How long until the key is as good as new.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<prost_types::Duration>,
    /// Not implemented by Envoy.
    #[prost(message, optional, tag = "5")]
    pub quota: Option<Quota>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct RateLimit {
    /// So many in each unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// What the limit is called.
    #[prost(string, tag = "3")]
    pub name: String,
    /// So many units together; 1 if not said. Envoy 1.40 and later.
    #[prost(message, optional, tag = "4")]
    pub unit_multiplier: Option<u32>,
}

/// `RateLimitResponse.Quota`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Quota {
    /// So many may pass unasked.
    #[prost(uint32, tag = "1")]
    pub requests: u32,
    /// Until then.
    #[prost(message, optional, tag = "2")]
    pub valid_until: Option<prost_types::Timestamp>,
    /// Which quota it is.
    #[prost(string, tag = "3")]
    pub id: String,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HeaderValue {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value, if it is text.
    #[prost(string, tag = "2")]
    pub value: String,
    /// The value, if it is bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub raw_value: Vec<u8>,
}

/// `RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Nobody knows.
    Unknown = 0,
    /// It may pass.
    Ok = 1,
    /// It may not.
    OverLimit = 2,
}

/// `RateLimitResponse.RateLimit.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of these.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// Thirty days, or a calendar month.
    Month = 5,
    /// 365 days, or a calendar year.
    Year = 6,
    /// Seven days.
    Week = 7,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    /// Written down from Envoy's descriptors, byte by byte.
    #[rustfmt::skip]
    const REQUEST: &[u8] = &[
        0x0a, 2, b'a', b'p',                       // domain
        0x12, 29,                                  // descriptors
            0x0a, 6, 0x0a, 1, b'k', 0x12, 1, b'v', //   entries: key, value
            0x0a, 3, 0x0a, 1, b'x',                //   entries: key only
            0x12, 8, 0x08, 100, 0x10, 2, 0x1a, 2, 0x08, 10, // limit: 100 in 10 minutes
            0x1a, 2, 0x08, 7,                      //   hits_addend
            0x20, 1,                               //   is_negative_hits
        0x18, 3,                                   // hits_addend
    ];

    #[rustfmt::skip]
    const RESPONSE: &[u8] = &[
        0x08, 2,                                   // overall_code
        0x12, 30,                                  // statuses
            0x08, 1,                               //   code
            0x12, 11, 0x08, 5, 0x10, 7, 0x1a, 1, b'n', 0x22, 2, 0x08, 2, // current_limit
            0x18, 4,                               //   limit_remaining
            0x22, 2, 0x08, 9,                      //   duration_until_reset
            0x2a, 7, 0x08, 1, 0x1a, 3, b'i', b'd', b's', // quota
        0x1a, 9, 0x0a, 1, b'h', 0x12, 1, b'v', 0x1a, 1, 0xff, // response_headers_to_add
        0x22, 3, 0x0a, 1, b'r',                    // request_headers_to_add
        0x2a, 2, b'n', b'o',                       // raw_body
        0x32, 0,                                   // dynamic_metadata
        0x3a, 6, 0x08, 3, 0x12, 2, 0x08, 6,        // quota
    ];

    #[test]
    fn a_request_is_these_bytes() {
        let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
        let request = RateLimitRequest {
            domain: "ap".to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries: vec![entry("k", "v"), entry("x", "")],
                limit: Some(RateLimitOverride {
                    requests_per_unit: 100,
                    unit: Unit::Minute.into(),
                    unit_multiplier: Some(10),
                }),
                hits_addend: Some(7),
                is_negative_hits: true,
            }],
            hits_addend: 3,
        };
        assert_eq!(request.encode_to_vec(), REQUEST);
        assert_eq!(RateLimitRequest::decode(REQUEST), Ok(request));
    }

    #[test]
    fn a_response_is_these_bytes() {
        let header = |key: &str, value: &str, raw_value: &[u8]| HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            raw_value: raw_value.to_vec(),
        };
        let quota = |requests, id: &str, seconds: Option<i64>| Quota {
            requests,
            valid_until: seconds.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
            id: id.to_owned(),
        };
        let response = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![DescriptorStatus {
                code: Code::Ok.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: 5,
                    unit: Unit::Week.into(),
                    name: "n".to_owned(),
                    unit_multiplier: Some(2),
                }),
                limit_remaining: 4,
                duration_until_reset: Some(prost_types::Duration { seconds: 9, nanos: 0 }),
                quota: Some(quota(1, "ids", None)),
            }],
            response_headers_to_add: vec![header("h", "v", &[0xff])],
            request_headers_to_add: vec![header("r", "", &[])],
            raw_body: bytes::Bytes::from_static(b"no"),
            dynamic_metadata: Some(prost_types::Struct::default()),
            quota: Some(quota(3, "", Some(6))),
        };
        assert_eq!(response.encode_to_vec(), RESPONSE);
        assert_eq!(RateLimitResponse::decode(RESPONSE), Ok(response));
    }
}
