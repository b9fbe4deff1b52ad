//! Reads the expiry date of a certificate.
//!
//! Always   No bytes cause an error: a certificate that does not follow RFC 5280 has no date. The TLS library decides whether
//!          it is valid.

use rustls::pki_types::CertificateDer;
use tidegate::Timestamp;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0]`, which contains the version.
const VERSION: u8 = 0xa0;

const DAY_SECONDS: u64 = 86_400;

/// Returns the earliest `notAfter` of a chain.
pub(super) fn earliest_end(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    chain.iter().filter_map(|certificate| end(certificate)).min()
}

/// Reads `Certificate.tbsCertificate.validity.notAfter` (RFC 5280, 4.1).
fn end(certificate: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = of_kind(certificate, SEQUENCE)?;
    let (tbs, _) = of_kind(certificate, SEQUENCE)?;
    let rest = of_kind(tbs, VERSION).map_or(tbs, |(_, rest)| rest);
    let (_serial, rest) = of_kind(rest, INTEGER)?;
    let (_signature, rest) = of_kind(rest, SEQUENCE)?;
    let (_issuer, rest) = of_kind(rest, SEQUENCE)?;
    let (validity, _) = of_kind(rest, SEQUENCE)?;
    let (_, _not_before, rest) = element(validity)?;
    let (kind, not_after, _) = element(rest)?;
    time(kind, not_after)
}

/// Returns the content of the first element and the bytes after it, if the element has this kind.
fn of_kind(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (kind, content, rest) = element(bytes)?;
    (kind == wanted).then_some((content, rest))
}

/// Returns the kind and the content of the first DER element, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the formats of RFC 5280. A date before 1970 becomes 1970.
fn time(kind: u8, text: &[u8]) -> Option<Timestamp> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match (kind, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = number(digits, 2)?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => number(digits, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, _) = number(rest, 2)?;
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let seconds =
        days_since_1970(year, month, day) * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_micros(seconds * 1_000_000))
}

fn number(digits: &[u8], length: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = digits.split_at_checked(length)?;
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    let number = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit.wrapping_sub(b'0')));
    is_plain.then_some((number, rest))
}

/// Counts days of the Gregorian calendar. Years start in March, so that a leap day is the last day of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    const DAYS_BEFORE_1970: u64 = 719_468;
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1;
    days.saturating_sub(DAYS_BEFORE_1970)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn seconds(time: Option<Timestamp>) -> u64 {
        time.expect("it has a date").as_micros() / 1_000_000
    }

    #[test]
    fn the_expiry_is_the_one_that_the_certificate_was_made_with() {
        // Until 2049 it is written as UTCTime, and from 2050 as GeneralizedTime.
        for (year, month, day) in
            [(1999, 12, 31), (2024, 2, 29), (2049, 12, 31), (2050, 1, 1), (4096, 1, 1)]
        {
            let made = certificate(year, month, day);
            let expected = date_time_ymd(year, month, day).unix_timestamp();
            assert_eq!(
                seconds(end(&made)),
                u64::try_from(expected).unwrap(),
                "{year}-{month}-{day}"
            );
        }
    }

    #[test]
    fn a_chain_expires_with_its_first_certificate() {
        let chain = [certificate(2040, 1, 1), certificate(2030, 1, 1), certificate(2050, 1, 1)];
        assert_eq!(earliest_end(&chain), end(&chain[1]));
        assert_eq!(earliest_end(&[]), None);
    }

    #[test]
    fn an_invalid_date_is_no_date() {
        assert_eq!(seconds(time(UTC_TIME, b"700101000001Z")), 1);
        for text in ["", "Z", "700101000001", "701301000001Z", "7001010000aaZ", "700101000001+0100"]
        {
            assert_eq!(time(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, index: prop::sample::Index, byte: u8) {
            let _ = end(&bytes);
            let mut changed = certificate_bytes();
            let index = index.index(changed.len());
            changed[index] = byte;
            let _ = end(&changed);
            let _ = end(&changed[..index]);
        }
    }

    fn certificate_bytes() -> Vec<u8> {
        static MADE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        MADE.get_or_init(|| certificate(2030, 1, 1).to_vec()).clone()
    }
}
