//! Applies request deadlines to the frames of an HTTP/2 connection, and bounds the frames that belong to no request.

use super::super::deadlines::ConnectionState;
use super::frames::FrameScanner;

/// Requests that may be in progress on one HTTP/2 connection.
pub(in super::super) const STREAMS_MAX: u32 = 1_024;

/// Bytes read from one connection before other tasks of the worker run: about two thousand of the shortest frames. tokio itself
/// would allow 128 reads, and a peer that floods its connection with settings would delay the others for that long.
pub(super) const TURN_BYTES: usize = 16 * 1024;

/// Frames that belong to no request (settings, pings) allowed in a second without a request among them.
///
/// Each has to be answered, and h2 goes on answering for as long as the peer listens, so one such peer would occupy a core. Of the
/// frames that arrive together, all but the first are counted, so a peer that waits for each answer is never limited. A client that
/// cancels all its calls because their time is up sends [`STREAMS_MAX`] such frames.
pub(super) const CONTROL_FRAMES_MAX: usize = 2 * STREAMS_MAX as usize;

/// Where a peer is in its stream of frames.
#[derive(Debug, Default)]
pub(super) struct Http2Monitor {
    scanner: FrameScanner,
    /// Bytes read since other tasks last ran.
    turn_bytes: usize,
    has_begun: bool,
    has_part: bool,
    is_stalled: bool,
    /// Control frames since the last request, in this second of the worker's count.
    control_frames: usize,
    second: u32,
}

impl Http2Monitor {
    /// Returns whether other tasks should run now, and begins a new turn if so.
    pub(super) fn ends_turn(&mut self) -> bool {
        let is_over = self.turn_bytes >= TURN_BYTES;
        if is_over {
            self.turn_bytes = 0;
        }
        is_over
    }

    /// Nothing was left to read, so other tasks run now.
    pub(super) fn begin_turn(&mut self) {
        self.turn_bytes = 0;
    }

    /// Returns whether the peer has sent more control frames than it may.
    pub(super) fn is_flooded(&self) -> bool {
        self.control_frames > CONTROL_FRAMES_MAX
    }

    pub(super) fn on_read(&mut self, bytes: &[u8], state: &ConnectionState) {
        self.turn_bytes += bytes.len();
        let scanned = self.scanner.scan(bytes);
        let second = state.second();
        if scanned.is_request || second != self.second {
            (self.control_frames, self.second) = (0, second);
        }
        self.control_frames += scanned.control_frames.saturating_sub(1);
        // A part that only continues keeps its deadline, and a ping extends nothing for an idle peer.
        let is_news = if scanned.has_part {
            scanned.is_whole || !self.has_part
        } else {
            self.has_part || scanned.is_request
        };
        if (is_news || !self.has_begun) && !self.is_stalled {
            state.await_input(scanned.has_part);
        }
        (self.has_begun, self.has_part) = (true, scanned.has_part);
    }

    /// The server speaks first, and much of what it writes is no answer, so only a write that the peer does not accept counts.
    pub(super) fn on_write(&mut self, is_accepted: bool, state: &ConnectionState) {
        match (self.is_stalled, is_accepted) {
            (false, false) if self.has_begun => state.begin_write(),
            (true, true) => state.await_input(self.has_part),
            _ => return,
        }
        self.is_stalled = !is_accepted;
    }
}
