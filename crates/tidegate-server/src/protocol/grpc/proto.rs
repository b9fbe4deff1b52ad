//! Envoy's rate limit messages, version 3.
//!
//! Names and numbers are those of Envoy 1.40. The messages are written by hand, so that a build needs neither protoc nor Envoy's
//! sources. The server encodes the response with them. It parses requests with [`Request`](super::Request), whose memory is
//! bounded; clients and tests use the request messages.

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// The namespace of the descriptors.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The descriptors to decide about.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The request's cost; 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// The entries, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that replaces the configured one.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The descriptor's cost, if it differs from the request's; 0 peeks.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the cost is refunded instead of charged. Envoy 1.38 and later.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `RateLimitDescriptor.RateLimitOverride`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct RateLimitOverride {
    /// Number of requests in each period.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// `envoy.type.v3.RateLimitUnit`: the numbers are those of [`Unit`].
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// Number of units in the period; default 1. Envoy 1.40 and later.
    #[prost(message, optional, tag = "3")]
    pub unit_multiplier: Option<u32>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// The joint decision.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// The decision of each descriptor, in the order of the request.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Header fields for the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// Header fields for the upstream.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    /// The body of a denial.
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: bytes::Bytes,
    /// Metadata for Envoy's other filters and its access log.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<prost_types::Struct>,
    /// Not implemented by Envoy.
    #[prost(message, optional, tag = "7")]
    pub quota: Option<Quota>,
}

/// `RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// The decision.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit, if any.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// The cost that would be admitted now.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// Time until the key has recovered.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<prost_types::Duration>,
    /// Not implemented by Envoy.
    #[prost(message, optional, tag = "5")]
    pub quota: Option<Quota>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct RateLimit {
    /// Number of requests in each period.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// The limit's name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Number of units in the period; default 1. Envoy 1.40 and later.
    #[prost(message, optional, tag = "4")]
    pub unit_multiplier: Option<u32>,
}

/// `RateLimitResponse.Quota`.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Quota {
    /// Number of requests that Envoy may admit by itself.
    #[prost(uint32, tag = "1")]
    pub requests: u32,
    /// The end of the quota.
    #[prost(message, optional, tag = "2")]
    pub valid_until: Option<prost_types::Timestamp>,
    /// The quota's identifier.
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
    /// Not known.
    Unknown = 0,
    /// Allowed.
    Ok = 1,
    /// Denied.
    OverLimit = 2,
}

/// `RateLimitResponse.RateLimit.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// Not one of these units.
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

    // From Envoy's message definitions, byte by byte.
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
