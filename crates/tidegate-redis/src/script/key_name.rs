//! The names of keys in Redis.
//!
//! Invariant  All names for one subject have the same hash tag, so they are in one slot of a cluster, and several limits of one
//!            subject are decided in one script.
//! Invariant  A name is readable text; a subject that is long or not readable is replaced by its hash. Only this module writes
//!            a `#`, so a suffix after `#` cannot be confused with a name.

/// Longer subjects are hashed, because Redis stores every byte of a name.
const SUBJECT_BYTES_MAX: usize = 96;

/// Returns the key in Redis for a subject of a limit.
pub(crate) fn of(prefix: &str, limit: &str, subject: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + limit.len() + subject.len() + 4);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b'{');
    tag(&mut name, subject);
    name.extend_from_slice(b"}:");
    tag(&mut name, limit.as_bytes());
    name
}

/// Returns the key, in the same slot, that lists the leases of a key.
pub(crate) fn leases(key: &[u8]) -> Vec<u8> {
    [key, b"#leases"].concat()
}

/// Returns the key, in the same slot, that holds the answer to an idempotent request. The cost is part of the name: a request
/// with another cost is another request, even with the same id.
pub(crate) fn idempotency(key: &[u8], cost: u64, id: &str) -> Vec<u8> {
    let mut name = [key, b"#once:", cost.to_string().as_bytes(), b":"].concat();
    tag(&mut name, id.as_bytes());
    name
}

/// Returns whether a byte is readable and has no meaning in a name: braces enclose a tag, and `#` marks a suffix or a hash.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'#')
}

fn tag(name: &mut Vec<u8>, subject: &[u8]) {
    let is_short = !subject.is_empty() && subject.len() <= SUBJECT_BYTES_MAX;
    if is_short && subject.iter().all(|byte| is_plain(*byte)) {
        name.extend_from_slice(subject);
    } else {
        name.push(b'#');
        name.extend_from_slice(sha1_smol::Sha1::from(subject).digest().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(subject: &[u8]) -> String {
        String::from_utf8(of("tg:", "login", subject)).expect("names are text")
    }

    #[test]
    fn a_readable_subject_is_part_of_the_name() {
        assert_eq!(named(b"user:1"), "tg:{user:1}:login");
        assert_eq!(named(&[b'a'; SUBJECT_BYTES_MAX]), format!("tg:{{{}}}:login", "a".repeat(96)));
    }

    #[test]
    fn every_other_subject_is_replaced_by_its_own_hash() {
        let subjects: [&[u8]; 7] =
            [b"", b"}", b"a}b", b"a b", b"\xff\x00", b"#", &[b'a'; SUBJECT_BYTES_MAX + 1]];
        let names: Vec<String> = subjects.iter().map(|subject| named(subject)).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(name.starts_with("tg:{#") && name.ends_with("}:login"), "{name}");
            assert!(!names[..index].contains(name), "{name} is not unique");
        }
    }

    #[test]
    fn the_answer_to_an_idempotent_request_is_in_the_slot_of_its_key() {
        let name = idempotency(&of("tg:", "login", b"user:1"), 3, "42");
        assert_eq!(name, b"tg:{user:1}:login#once:3:42");
    }

    #[test]
    fn no_name_of_a_request_or_a_limit_equals_that_of_the_list_of_leases() {
        let key = of("tg:", "login", b"user:1");
        let lists = [leases(&key), idempotency(&key, 1, "leases"), idempotency(&key, 1, "#leases")];
        let limits = ["login:leases", "login#leases", "login#once:leases", "#leases"]
            .map(|limit| of("tg:", limit, b"user:1"));
        let names: Vec<&Vec<u8>> = lists.iter().chain(&limits).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
