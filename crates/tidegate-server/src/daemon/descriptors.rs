//! File descriptors: each connection takes one, and systems give a process few unless it asks for more.

use crate::net::{ADMIN_CONNECTIONS_MAX, REJECTIONS_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of a worker: its listeners, its event queue and its wake-up.
const OF_WORKER: u64 = 12;
/// Descriptors for snapshots, logs, the configuration and connections to a store.
const OF_PROCESS: u64 = 48;

/// Raises the limit on descriptors to the maximum. Returns how many connections there are descriptors for, besides admin
/// connections and other uses, and logs a warning if that is fewer than configured.
pub(super) fn take_all(connections_max: usize) -> usize {
    let may = getrlimit(Resource::Nofile);
    let all = Rlimit { current: may.maximum, maximum: may.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::warn!("cannot raise the limit on file descriptors: {error}");
    }
    let workers = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let besides = ADMIN_CONNECTIONS_MAX + REJECTIONS_MAX as u64 + workers * OF_WORKER + OF_PROCESS;
    let needs = (connections_max as u64).saturating_add(besides);
    let Some(has) = getrlimit(Resource::Nofile).current.filter(|has| *has < needs) else {
        return connections_max;
    };
    let ceiling = ceiling(has, besides);
    tracing::warn!(
        "there are {has} descriptors for {connections_max} connections, so there will be {ceiling} at most: raise \
         `ulimit -Hn` or LimitNOFILE= to {needs}, or lower `connections` in [server.caps]"
    );
    ceiling
}

/// Returns the descriptors that other uses leave, but at least a quarter of all.
fn ceiling(has: u64, besides: u64) -> usize {
    let left = has.saturating_sub(besides).max(has / 4).max(1);
    usize::try_from(left).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_other_uses() {
        let cases = [(1_024, 200, 824), (65_536, 200, 65_336), (220, 200, 55), (64, 200, 16)];
        for (has, besides, left) in cases {
            assert_eq!(ceiling(has, besides), left, "{has}");
        }
        assert_eq!(ceiling(1, 200), 1);
    }
}
