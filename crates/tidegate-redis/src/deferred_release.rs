//! Releases of permits that Redis has not confirmed: they are sent again until Redis answers.
//!
//! Invariant  A permit is released once, however often the release is sent: its ticket and its time identify one permit, even
//!            after Redis has lost its data.
//! Invariant  Sending ends when Redis has answered or the permit has expired: after its lease, or after a day without one. Until
//!            then the queue lives on, even if the limiter is dropped.
//! Bound      [`RELEASES_MAX`] releases of a limit. Further permits are left to expire, which is logged.

use crate::connection::RedisStoreError;
use crate::remote::RemoteLimit;
use crate::script::stored_value;
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Timestamp;
use tokio::time::{Instant, sleep};

const RELEASES_MAX: usize = 1 << 16;
/// The pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Identifies a permit in Redis: its ticket, and since when it is held.
pub(crate) type PermitId = (u64, Timestamp);

/// Releases the permits of one limit.
#[derive(Debug)]
pub(crate) struct DeferredReleases {
    remote: Arc<RemoteLimit>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    releases: Vec<Release>,
    /// How many releases are being sent.
    in_progress: usize,
    /// Whether a task is sending.
    is_running: bool,
}

#[derive(Debug)]
struct Release {
    key: Vec<u8>,
    permit: PermitId,
    /// When the permit expires.
    expires: Instant,
}

impl DeferredReleases {
    pub(crate) fn new(remote: Arc<RemoteLimit>) -> Self {
        Self { remote, queue: Mutex::default() }
    }

    /// Releases a permit. Returns whether it was held.
    ///
    /// # Errors
    /// Redis has not answered. The release is sent again in the background.
    pub(crate) async fn release(
        self: &Arc<Self>,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, RedisStoreError> {
        let released = self.remote.release(key, permit).await;
        if released.is_err() {
            self.defer(key, permit);
        }
        released
    }

    fn defer(self: &Arc<Self>, key: &[u8], permit: PermitId) {
        let lasts = self.remote.rule().lease().unwrap_or(stored_value::ORPHANED);
        let expires = Instant::now() + lasts.as_duration();
        let queued = self.queue.lock().push(Release { key: key.to_vec(), permit, expires });
        match queued {
            Queued::Running => {}
            Queued::Idle => {
                let releases = Arc::clone(self);
                self.remote.runner().runtime.spawn(async move { releases.send_all().await });
            }
            Queued::Full => tracing::warn!(
                limit = self.remote.name(),
                "{RELEASES_MAX} releases wait for Redis: a further permit is left to expire"
            ),
        }
    }

    async fn send_all(&self) {
        while !self.queue.lock().finish() {
            sleep(RETRY_INTERVAL).await;
            let releases = self.queue.lock().take();
            for release in releases {
                let is_done = Instant::now() >= release.expires
                    || self.remote.is_up(&release.key)
                        && self.remote.release(&release.key, release.permit).await.is_ok();
                self.queue.lock().attempted((!is_done).then_some(release));
            }
        }
    }
}

/// The result of adding to the queue.
#[derive(Debug, PartialEq, Eq)]
enum Queued {
    /// A task is sending already.
    Running,
    /// The caller must start a task.
    Idle,
    /// The queue is full.
    Full,
}

impl Queue {
    fn push(&mut self, release: Release) -> Queued {
        if self.releases.len() + self.in_progress >= RELEASES_MAX {
            return Queued::Full;
        }
        self.releases.push(release);
        let was_running = std::mem::replace(&mut self.is_running, true);
        if was_running { Queued::Running } else { Queued::Idle }
    }

    /// Takes all releases, to send them.
    fn take(&mut self) -> Vec<Release> {
        self.in_progress = self.releases.len();
        std::mem::take(&mut self.releases)
    }

    /// Records an attempt, and puts the release back if it failed.
    fn attempted(&mut self, failed: Option<Release>) {
        self.in_progress -= 1;
        self.releases.extend(failed);
    }

    /// Returns whether the queue is empty, so that the task ends.
    fn finish(&mut self) -> bool {
        self.is_running = !self.releases.is_empty();
        !self.is_running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Release {
        Release { key: b"key".to_vec(), permit: (1, Timestamp::EPOCH), expires: Instant::now() }
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = Queue::default();
        for _ in 0..RELEASES_MAX {
            assert_ne!(queue.push(release()), Queued::Full);
        }
        assert_eq!(queue.push(release()), Queued::Full);
        let taken = queue.take();
        assert_eq!(queue.push(release()), Queued::Full, "releases in progress count too");
        for release in taken.into_iter().skip(1) {
            queue.attempted(Some(release));
        }
        queue.attempted(None);
        assert_eq!(queue.push(release()), Queued::Running);
        assert_eq!(queue.push(release()), Queued::Full);
    }

    #[test]
    fn one_task_sends_and_the_next_release_after_its_end_starts_another() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(release()), Queued::Idle);
        assert_eq!(queue.push(release()), Queued::Running);
        assert!(!queue.finish());
        for _ in queue.take() {
            queue.attempted(None);
        }
        assert!(queue.finish());
        assert_eq!(queue.push(release()), Queued::Idle);
    }
}
