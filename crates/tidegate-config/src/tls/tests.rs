//! Certificates that go together with their keys, and others.

use super::*;
use tidegate_testbed::self_signed as pair;

fn credentials(
    certificates: &str,
    key: &str,
    authorities: Option<&str>,
) -> Result<Credentials, TlsError> {
    Credentials::new(Pem {
        certificates: certificates.as_bytes(),
        key: key.as_bytes(),
        client_authorities: authorities.map(str::as_bytes),
    })
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ((certificate, key), (_, other)) = (pair(2040), pair(2040));
    assert!(credentials(&certificate, &key, None).is_ok());
    let refused = credentials(&certificate, &other, None).unwrap_err();
    assert!(refused.to_string().starts_with("is not the key of the certificate"), "{refused}");
}

#[test]
fn a_file_with_the_wrong_contents_is_refused() {
    let (certificate, key) = pair(2040);
    for wrong in ["", "a certificate", &key] {
        let refused = credentials(wrong, &key, None).unwrap_err();
        assert!(matches!(refused, TlsError::Certificate(_)), "{refused}");
        let refused = credentials(&certificate, &key, Some(wrong)).unwrap_err();
        assert!(matches!(refused, TlsError::ClientAuthority(_)), "{refused}");
    }
    for wrong in ["", "a key", &certificate] {
        let refused = credentials(&certificate, wrong, None).unwrap_err();
        assert!(matches!(refused, TlsError::Key(_)), "{refused}");
    }
    let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(credentials(empty, &key, None).is_err());
    assert!(credentials(&certificate, &key, Some(empty)).is_err());
}

#[test]
fn a_certificate_that_has_expired_or_will_within_a_week_is_reported() {
    let (certificate, key) = pair(2030);
    let credentials = credentials(&certificate, &key, None).unwrap();
    let end = credentials.expires().unwrap();
    let told = |now: Timestamp| credentials.expires_soon(now);
    let day = Span::from_secs(86_400);
    let hour = Span::from_secs(3_600);
    assert_eq!(told(Timestamp::from_micros(end.as_micros() - 8 * day.as_micros())), None);
    let before = |span: Span| Timestamp::from_micros(end.as_micros() - span.as_micros());
    assert_eq!(told(before(SOON)).unwrap(), "expires in 7 days");
    assert_eq!(told(before(hour)).unwrap(), "expires in 1 hour");
    assert_eq!(told(end).unwrap(), "expired 0 hours ago: clients refuse it");
    assert_eq!(told(end + day + hour).unwrap(), "expired 1 day ago: clients refuse it");
}

#[test]
fn neither_key_nor_certificate_is_printed() {
    let (certificate, key) = pair(2040);
    let printed = format!("{:?}", credentials(&certificate, &key, None).unwrap());
    assert!(printed.starts_with("Credentials { expires: ") && printed.len() < 100, "{printed}");
}
