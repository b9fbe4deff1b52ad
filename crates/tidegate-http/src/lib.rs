//! HTTP vocabulary of rate limits, shared by Tidegate's tower layers and its server.
//!
//! - [`HeaderStyle`] writes `RateLimit`, `RateLimit-Policy`, `X-RateLimit-*` and `Retry-After`.
//! - [`put_denial`] writes the problem body (RFC 9457) of a denied request.
//! - [`client_ip`] finds the client's address behind trusted proxies, and [`AddressBits`] makes a key of it.
//! - [`Mode`] says whether a limit is enforced, and what a client sees of it.
//!
//! The crate decides nothing and does no I/O. Applications use it through `tidegate-tower` or `tidegate-server`.

mod address_bits;
mod byte_writer;
mod client_address;
mod enforcement;
mod key_parts;
mod limit_status;
mod problem;
mod rate_limit_fields;

pub use address_bits::AddressBits;
pub use byte_writer::ByteWriter;
pub use client_address::{
    ForwardingHeaders, ProxyHeader, client_ip, client_ip_from_headers, is_trusted,
};
pub use enforcement::{EffectiveDecision, Mode, ShadowAction};
pub use ipnet::IpNet;
pub use key_parts::{put_key_part, single_value};
pub use limit_status::{
    FIELD_INTEGER_MAX, LimitStatus, RETRY_ON_RELEASE, reset_after, retry_after_secs,
};
pub use problem::{
    JSON_INTEGER_MAX, NO_STORE, PROBLEM_JSON, PROBLEM_TYPES, millis_ceil, put_decision_members,
    put_denial,
};
pub use rate_limit_fields::{FieldWriter, HeaderStyle, PreparedFields};
