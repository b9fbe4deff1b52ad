//! What keys are called in Redis.
//!
//! Always   All that belongs to one subject has one hash tag, so that it lies in one slot of a cluster and is
//!          decided in one script, whatever limits there are. A name can be read by whoever looks for it; what
//!          cannot be read, or is long, is its hash instead. No name of a limit, a subject or a request has a `#` in it that
//!          was not put there here, so what stands after one cannot be taken for anything else.

/// Longer subjects are hashed: Redis would keep every byte.
const SUBJECT_BYTES_MAX: usize = 96;

/// The key in Redis of a subject under a limit.
pub(crate) fn of(prefix: &str, limit: &str, subject: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + limit.len() + subject.len() + 4);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b'{');
    tag(&mut name, subject);
    name.extend_from_slice(b"}:");
    tag(&mut name, limit.as_bytes());
    name
}

/// Where it is written who has a lease of a key: in the same slot.
pub(crate) fn leases(key: &[u8]) -> Vec<u8> {
    [key, b"#leases"].concat()
}

/// Where the answer to a request is kept that may be sent twice: in the same slot as its key. What costs something else is
/// another request, whatever its id: the answer to one says nothing about the other.
pub(crate) fn once(key: &[u8], cost: u64, id: &str) -> Vec<u8> {
    let mut name = [key, b"#once:", cost.to_string().as_bytes(), b":"].concat();
    tag(&mut name, id.as_bytes());
    name
}

/// Braces end a tag, and the mark of a hash must not be written by anybody.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'#')
}

fn tag(name: &mut Vec<u8>, subject: &[u8]) {
    let is_short = !subject.is_empty() && subject.len() <= SUBJECT_BYTES_MAX;
    if is_short && subject.iter().all(|byte| is_plain(*byte)) {
        name.extend_from_slice(subject);
    } else {
        // Nobody can find another subject with the same hash, which is all that is asked of it.
        name.push(b'#');
        name.extend_from_slice(sha1_smol::Sha1::from(subject).digest().to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(subject: &[u8]) -> String {
        String::from_utf8(of("tg:", "login", subject)).expect("names can be read")
    }

    #[test]
    fn a_subject_that_can_be_read_is_read() {
        assert_eq!(named(b"user:1"), "tg:{user:1}:login");
        assert_eq!(named(&[b'a'; SUBJECT_BYTES_MAX]), format!("tg:{{{}}}:login", "a".repeat(96)));
    }

    #[test]
    fn any_other_is_a_hash_of_its_own() {
        let subjects: [&[u8]; 7] =
            [b"", b"}", b"a}b", b"a b", b"\xff\x00", b"#", &[b'a'; SUBJECT_BYTES_MAX + 1]];
        let names: Vec<String> = subjects.iter().map(|subject| named(subject)).collect();
        for (place, name) in names.iter().enumerate() {
            assert!(name.starts_with("tg:{#") && name.ends_with("}:login"), "{name}");
            assert!(!names[..place].contains(name), "{name} is there twice");
        }
    }

    #[test]
    fn an_answer_lies_with_its_key() {
        let once = once(&of("tg:", "login", b"user:1"), 3, "42");
        assert_eq!(once, b"tg:{user:1}:login#once:3:42");
    }

    #[test]
    fn no_request_and_no_limit_is_called_what_the_list_of_leases_is() {
        let key = of("tg:", "login", b"user:1");
        let lists = [leases(&key), once(&key, 1, "leases"), once(&key, 1, "#leases")];
        let limits = ["login:leases", "login#leases", "login#once:leases", "#leases"]
            .map(|limit| of("tg:", limit, b"user:1"));
        let names: Vec<&Vec<u8>> = lists.iter().chain(&limits).collect();
        for (place, name) in names.iter().enumerate() {
            assert!(!names[..place].contains(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
