//! A bounded queue of log lines, and the thread that writes them to standard error.
//!
//! Always   Only the writer thread ever waits for standard error. Whether its reader has gone, has stopped reading, or its disk is
//!          full: adding a line takes a short lock, and adds the line or drops it.
//! Bound    At most [`LINES_MAX`] lines and [`BYTES_MAX`] bytes wait; a line has at most [`LINE_BYTES_MAX`] bytes. Dropped lines
//!          are counted.

use crate::escape::Escaped;
use crate::server::status::{DropReason, LogDrops};
use crate::sync::lock;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Enough for a [burst](super::repeats::RULE) of two hundred kinds of events.
const LINES_MAX: usize = 10_000;
const BYTES_MAX: usize = 1 << 20;
/// Enough for fifty errors of a configuration.
const LINE_BYTES_MAX: usize = 128 << 10;
/// Indents the lines of an event after the first, so that no text within an event looks like another event.
const LINE_BREAK: &str = "\n    ";

/// Lines that have not been written.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    drops: Arc<LogDrops>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<String>,
    bytes: usize,
    /// Whether the writer thread is writing a line.
    is_writing: bool,
    is_closed: bool,
}

/// The next step of the writer thread.
enum Next {
    Write(String),
    /// No line arrived in time.
    Pause,
    End,
}

impl Queue {
    pub(super) fn new(drops: Arc<LogDrops>) -> Self {
        Self { waiting: Mutex::default(), changed: Condvar::new(), drops }
    }

    /// Adds a line, or drops it if the queue is full. Never waits for standard error.
    fn push(&self, line: String) {
        let mut waiting = lock(&self.waiting);
        let has_room = waiting.lines.len() < LINES_MAX && waiting.bytes + line.len() <= BYTES_MAX;
        if waiting.is_closed || !has_room || line.len() > LINE_BYTES_MAX {
            drop(waiting);
            return self.drops.add(DropReason::Full);
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Writes lines until the queue is closed and empty. Calls `after` after every line, and after every `pause` without one, with
    /// whether the last line could be written.
    pub(super) fn drain_to(
        &self,
        mut out: impl Write,
        pause: Duration,
        mut after: impl FnMut(bool),
    ) {
        let mut is_writable = true;
        loop {
            match self.next(pause) {
                Next::Write(line) => {
                    is_writable = out.write_all(line.as_bytes()).is_ok() && out.flush().is_ok();
                    if !is_writable {
                        self.drops.add(DropReason::Unwritable);
                    }
                    lock(&self.waiting).is_writing = false;
                    self.changed.notify_all();
                }
                Next::Pause => {}
                Next::End => return,
            }
            after(is_writable);
        }
    }

    fn next(&self, within: Duration) -> Next {
        let is_idle = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.is_closed;
        let waited = self.changed.wait_timeout_while(lock(&self.waiting), within, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match waiting.lines.pop_front() {
            Some(line) => {
                waiting.bytes -= line.len();
                waiting.is_writing = true;
                Next::Write(line)
            }
            None if waiting.is_closed => Next::End,
            None => Next::Pause,
        }
    }

    /// Closes the queue, after waiting for at most `patience` until every line is written. Later lines are dropped.
    pub(super) fn close(&self, patience: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let waited = self.changed.wait_timeout_while(lock(&self.waiting), patience, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closed = true;
        self.changed.notify_all();
    }
}

/// Every call is one event, which ends with a line feed.
impl Write for &Queue {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        self.push(format!("{}\n", Escaped::new(text).line_break(LINE_BREAK)));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn queue() -> (Arc<LogDrops>, Arc<Queue>) {
        let drops = Arc::new(LogDrops::default());
        (Arc::clone(&drops), Arc::new(Queue::new(drops)))
    }

    fn put(mut queue: &Queue, event: &str) {
        queue.write_all(event.as_bytes()).expect("the queue accepts every event");
    }

    /// Returns what the writer thread writes.
    fn written(queue: &Queue) -> String {
        let mut out = Vec::new();
        lock(&queue.waiting).is_closed = true;
        queue.drain_to(&mut out, Duration::ZERO, |_| {});
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn the_queue_is_bounded_in_lines_and_in_bytes() {
        let (drops, queue) = queue();
        (0..LINES_MAX + 7).for_each(|_| put(&queue, "x\n"));
        assert_eq!(drops.count(DropReason::Full), 7);
        assert_eq!(written(&queue).lines().count(), LINES_MAX);

        let (drops, queue) = self::queue();
        let long = "x".repeat(LINE_BYTES_MAX - 1);
        let capacity = BYTES_MAX / LINE_BYTES_MAX;
        (0..=capacity).for_each(|_| put(&queue, &long));
        assert_eq!(drops.count(DropReason::Full), 1, "only {capacity} lines fit");
        assert_eq!(written(&queue).lines().count(), capacity);

        let (drops, queue) = self::queue();
        put(&queue, &"x".repeat(LINE_BYTES_MAX));
        assert_eq!(drops.count(DropReason::Full), 1, "with its line feed it is too long");
    }

    #[test]
    fn no_text_within_an_event_looks_like_another_event_or_moves_the_cursor() {
        let (_, queue) = queue();
        put(&queue, "WARN a peer: \x1b[2J\r\nERROR forged\n");
        put(&queue, "INFO next\n");
        assert_eq!(written(&queue), "WARN a peer: \\u001b[2J\n    \n    ERROR forged\nINFO next\n");
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_the_next_one_is_tried() {
        struct Gone(u32);
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (drops, queue) = queue();
        (0..3).for_each(|_| put(&queue, "x\n"));
        lock(&queue.waiting).is_closed = true;
        let mut gone = Gone(0);
        queue.drain_to(&mut gone, Duration::ZERO, |_| {});
        assert_eq!((gone.0, drops.count(DropReason::Unwritable)), (3, 3));
    }

    #[test]
    fn closing_waits_for_the_writer_but_not_for_a_reader_that_has_stopped() {
        /// Writes when the test sends a message.
        struct Slow(mpsc::Receiver<()>, mpsc::Sender<()>);
        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.1.send(()).expect("the test receives it");
                self.0.recv().expect("the test sends it");
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (drops, queue) = queue();
        let ((go, is_to_go), (has_begun, begun)) = (mpsc::channel(), mpsc::channel());
        let writer = Arc::clone(&queue);
        let slow = Slow(is_to_go, has_begun);
        let thread = std::thread::spawn(move || writer.drain_to(slow, Duration::MAX, |_| {}));
        (0..2).for_each(|_| put(&queue, "x\n"));
        begun.recv().expect("it writes the first");
        queue.close(Duration::from_millis(1));
        assert_eq!(
            lock(&queue.waiting).lines.len(),
            1,
            "closing returned although the line was not written"
        );
        put(&queue, "too late\n");
        assert_eq!(drops.count(DropReason::Full), 1);
        go.send(()).expect("it waits");
        begun.recv().expect("it writes the second");
        go.send(()).expect("it waits");
        queue.close(Duration::MAX);
        thread.join().expect("all lines are written");
    }
}
