//! The reply to a buyer, and its HTTP status.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// The end of one attempt to buy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum SaleReply {
    /// The buyer has one.
    Sold {
        /// The number of the order, which is in the database.
        order: i64,
        /// How many are left, as of this sale.
        left: i64,
    },
    /// There are none left. Retrying does not help.
    SoldOut,
    /// Another buyer was faster (optimistic ways only). There may be some left.
    Conflict,
    /// This buyer tries too often.
    TooMany {
        /// The time until the same buyer may try again.
        retry_after_ms: u64,
    },
    /// Too many buyers: the request did not reach the database, or the database did not answer in time.
    Busy {
        /// The time until a retry may succeed.
        retry_after_ms: u64,
    },
}

impl SaleReply {
    /// Returns the HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Sold { .. } => StatusCode::OK,
            Self::SoldOut => StatusCode::GONE,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the value of `Retry-After` in whole seconds, rounded up, so that an obedient client is not early.
    pub const fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::TooMany { retry_after_ms } | Self::Busy { retry_after_ms } => {
                Some(retry_after_ms.div_ceil(1_000))
            }
            Self::Sold { .. } | Self::SoldOut | Self::Conflict => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_flat_json_and_parses_back() {
        for (answer, json) in [
            (SaleReply::Sold { order: 7, left: 92 }, r#"{"answer":"sold","order":7,"left":92}"#),
            (SaleReply::SoldOut, r#"{"answer":"sold_out"}"#),
            (SaleReply::Busy { retry_after_ms: 40 }, r#"{"answer":"busy","retry_after_ms":40}"#),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), json);
            assert_eq!(serde_json::from_str::<SaleReply>(json).unwrap(), answer);
        }
    }

    #[test]
    fn retry_after_is_never_early_and_never_zero() {
        assert_eq!(SaleReply::TooMany { retry_after_ms: 1 }.retry_after_secs(), Some(1));
        assert_eq!(SaleReply::Busy { retry_after_ms: 1_001 }.retry_after_secs(), Some(2));
        assert_eq!(SaleReply::SoldOut.retry_after_secs(), None);
    }
}
