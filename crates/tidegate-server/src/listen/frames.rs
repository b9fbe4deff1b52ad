//! Where HTTP/2's frames begin and end: a peer that stops in the middle of a request is late, one that has
//! nothing to ask is not, and only the frames tell them apart.
//!
//! Always   Nothing is kept but the head of one frame, and nothing is judged: that is h2's.

/// What every HTTP/2 client says first.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The place in a stream of frames.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD_BYTES],
    head_read: usize,
    /// Bytes that are still to come of what has begun.
    rest: usize,
    /// Whether a request's headers have begun and not ended.
    is_in_headers: bool,
}

/// What has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Come {
    /// Whether something was finished that stands for itself.
    pub(super) is_whole: bool,
    /// Whether it was of a request, and not only about the connection.
    pub(super) is_request: bool,
    /// Whether something has begun that is not finished.
    pub(super) has_part: bool,
    /// Frames that are of no request, since the last that is.
    pub(super) others: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; HEAD_BYTES], head_read: 0, rest: PREFACE_BYTES, is_in_headers: false }
    }
}

impl Frames {
    /// Goes on by what has come.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Come {
        let mut come = Come::default();
        while !bytes.is_empty() {
            let is_over = if self.rest > 0 {
                let taken = self.rest.min(bytes.len());
                (self.rest, bytes) = (self.rest - taken, &bytes[taken..]);
                self.rest == 0
            } else {
                self.head[self.head_read] = bytes[0];
                (self.head_read, bytes) = (self.head_read + 1, &bytes[1..]);
                self.head_read == HEAD_BYTES && self.begin(&mut come)
            };
            come.is_whole |= is_over && !self.is_in_headers;
        }
        come.has_part = self.rest > 0 || self.head_read > 0 || self.is_in_headers;
        come
    }

    /// A frame's head is there. Tells whether that is all of it.
    fn begin(&mut self, come: &mut Come) -> bool {
        let [a, b, c, kind, flags, ..] = self.head;
        self.rest = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.head_read = 0;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_headers = flags & END_HEADERS == 0;
        }
        match kind {
            DATA | HEADERS => (come.is_request, come.others) = (true, 0),
            CONTINUATION => {}
            _ => come.others += 1,
        }
        self.rest == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u8::try_from(payload).expect("it is short");
        [&[0, 0, length, kind, flags, 0, 0, 0, 1][..], &vec![b'x'; payload]].concat()
    }

    fn after(frames: &[Vec<u8>]) -> Come {
        let mut place = Frames::default();
        place.follow(PREFACE);
        place.follow(&frames.concat())
    }

    #[test]
    fn a_part_of_anything_is_a_part() {
        let whole = [PREFACE.to_vec(), frame(4, 0, 6), frame(HEADERS, END_HEADERS, 3)].concat();
        for cut in 0..=whole.len() {
            let mut place = Frames::default();
            place.follow(&whole[..cut / 2]);
            let come = place.follow(&whole[cut / 2..cut]);
            let is_edge = [24, 39, whole.len()].contains(&cut);
            assert_eq!(come.has_part, !is_edge, "{cut} bytes");
        }
    }

    #[test]
    fn headers_end_where_they_say() {
        let open = after(&[frame(HEADERS, 0, 3), frame(CONTINUATION, 0, 3)]);
        assert_eq!(open, Come { is_whole: false, is_request: true, has_part: true, others: 0 });
        let closed = after(&[frame(HEADERS, 0, 3), frame(CONTINUATION, END_HEADERS, 3)]);
        assert_eq!(closed, Come { is_whole: true, is_request: true, has_part: false, others: 0 });
    }

    #[test]
    fn what_is_about_the_connection_is_no_request() {
        let come = after(&[frame(6, 1, 8), frame(4, 1, 0)]);
        assert_eq!(come, Come { is_whole: true, is_request: false, has_part: false, others: 2 });
        let come = after(&[frame(6, 0, 8), frame(HEADERS, END_HEADERS, 3), frame(6, 0, 8)]);
        assert_eq!(come.others, 1, "a request comes between");
    }
}
