//! Finds where HTTP/2 frames begin and end.
//!
//! A peer that stops in the middle of a request is late; a peer between requests is idle. Only the frames distinguish the
//! two.
//!
//! State     The header of one frame. Frames are not validated here: h2 does that.

/// Length of the connection preface, which every HTTP/2 client sends first.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameScanner {
    header: [u8; HEADER_BYTES],
    header_read: usize,
    /// Bytes still to come of the preface or of the current frame's payload.
    rest: usize,
    /// Whether the headers of a request have begun and not ended.
    is_in_headers: bool,
}

/// What a piece of input contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Whether a frame, or a block of headers, has ended.
    pub(super) is_whole: bool,
    /// Whether one of the frames belongs to a request, and is not only about the connection.
    pub(super) is_request: bool,
    /// Whether a frame or a block of headers has begun and not ended.
    pub(super) has_part: bool,
    /// Number of frames about the connection since the last frame of a request.
    pub(super) control_frames: usize,
}

impl Default for FrameScanner {
    fn default() -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_read: 0,
            rest: PREFACE_BYTES,
            is_in_headers: false,
        }
    }
}

impl FrameScanner {
    /// Reads the next piece of input.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> Scanned {
        let mut scanned = Scanned::default();
        while !bytes.is_empty() {
            let has_ended = if self.rest > 0 {
                let taken = self.rest.min(bytes.len());
                (self.rest, bytes) = (self.rest - taken, &bytes[taken..]);
                self.rest == 0
            } else {
                self.header[self.header_read] = bytes[0];
                (self.header_read, bytes) = (self.header_read + 1, &bytes[1..]);
                self.header_read == HEADER_BYTES && self.begin_frame(&mut scanned)
            };
            scanned.is_whole |= has_ended && !self.is_in_headers;
        }
        scanned.has_part = self.rest > 0 || self.header_read > 0 || self.is_in_headers;
        scanned
    }

    /// Interprets a complete frame header. Returns whether the frame has no payload.
    fn begin_frame(&mut self, scanned: &mut Scanned) -> bool {
        let [a, b, c, kind, flags, ..] = self.header;
        self.rest = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.header_read = 0;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_headers = flags & END_HEADERS == 0;
        }
        match kind {
            DATA | HEADERS => (scanned.is_request, scanned.control_frames) = (true, 0),
            CONTINUATION => {}
            _ => scanned.control_frames += 1,
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

    fn scan_after_preface(frames: &[Vec<u8>]) -> Scanned {
        let mut scanner = FrameScanner::default();
        scanner.scan(PREFACE);
        scanner.scan(&frames.concat())
    }

    #[test]
    fn input_that_ends_inside_a_frame_has_a_part() {
        let whole = [PREFACE.to_vec(), frame(4, 0, 6), frame(HEADERS, END_HEADERS, 3)].concat();
        for cut in 0..=whole.len() {
            let mut scanner = FrameScanner::default();
            scanner.scan(&whole[..cut / 2]);
            let result = scanner.scan(&whole[cut / 2..cut]);
            let is_edge = [24, 39, whole.len()].contains(&cut);
            assert_eq!(result.has_part, !is_edge, "{cut} bytes");
        }
    }

    #[test]
    fn headers_end_with_the_end_headers_flag() {
        let open = scan_after_preface(&[frame(HEADERS, 0, 3), frame(CONTINUATION, 0, 3)]);
        let expected =
            Scanned { is_whole: false, is_request: true, has_part: true, control_frames: 0 };
        assert_eq!(open, expected);
        let closed =
            scan_after_preface(&[frame(HEADERS, 0, 3), frame(CONTINUATION, END_HEADERS, 3)]);
        let expected =
            Scanned { is_whole: true, is_request: true, has_part: false, control_frames: 0 };
        assert_eq!(closed, expected);
    }

    #[test]
    fn frames_about_the_connection_are_no_requests() {
        let scanned = scan_after_preface(&[frame(6, 1, 8), frame(4, 1, 0)]);
        let expected =
            Scanned { is_whole: true, is_request: false, has_part: false, control_frames: 2 };
        assert_eq!(scanned, expected);
        let scanned =
            scan_after_preface(&[frame(6, 0, 8), frame(HEADERS, END_HEADERS, 3), frame(6, 0, 8)]);
        assert_eq!(scanned.control_frames, 1, "a request comes between the two pings");
    }
}
