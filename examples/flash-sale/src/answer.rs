//! What a buyer is told, and what it is in HTTP.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// The end of one attempt to buy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It is yours.
    Sold {
        /// The number of the order, which is in the database.
        order: i64,
        /// How many are left, as far as this buyer saw.
        left: i64,
    },
    /// There are none left. Coming back does not help.
    SoldOut,
    /// Somebody else was faster (optimistic ways only). There may be some left.
    Conflict,
    /// This buyer asks too often.
    TooMany {
        /// When the same buyer may ask again.
        retry_after_ms: u64,
    },
    /// There are more buyers than can be served; the buyer never got to the database, or it did not answer in time.
    Busy {
        /// When there may be room again.
        retry_after_ms: u64,
    },
}

impl Answer {
    /// The HTTP status that says so.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Sold { .. } => StatusCode::OK,
            Self::SoldOut => StatusCode::GONE,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// For `Retry-After`, which counts whole seconds: rounded up, so that who obeys is not early.
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
    fn an_answer_is_flat_json_and_comes_back_whole() {
        for (answer, json) in [
            (Answer::Sold { order: 7, left: 92 }, r#"{"answer":"sold","order":7,"left":92}"#),
            (Answer::SoldOut, r#"{"answer":"sold_out"}"#),
            (Answer::Busy { retry_after_ms: 40 }, r#"{"answer":"busy","retry_after_ms":40}"#),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), json);
            assert_eq!(serde_json::from_str::<Answer>(json).unwrap(), answer);
        }
    }

    #[test]
    fn retry_after_is_never_early_and_never_zero_for_who_must_wait() {
        assert_eq!(Answer::TooMany { retry_after_ms: 1 }.retry_after_secs(), Some(1));
        assert_eq!(Answer::Busy { retry_after_ms: 1_001 }.retry_after_secs(), Some(2));
        assert_eq!(Answer::SoldOut.retry_after_secs(), None);
    }
}
