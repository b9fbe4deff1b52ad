//! Descriptors: each connection takes one, and systems give a process few unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open besides connections: listeners of every worker, files, runtimes.
const BESIDES: u64 = 256;

/// Takes all descriptors that it may have, and says so if they are fewer than the connections it is to have.
pub(super) fn take_all(connections_max: usize) {
    let may = getrlimit(Resource::Nofile);
    let all = Rlimit { current: may.maximum, maximum: may.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::warn!("cannot take all the descriptors it may have: {error}");
    }
    let has = getrlimit(Resource::Nofile).current;
    let needs = (connections_max as u64).saturating_add(BESIDES);
    if let Some(has) = has.filter(|has| *has < needs) {
        tracing::warn!(
            "there are {has} descriptors for {connections_max} connections: raise `ulimit -Hn` or LimitNOFILE= to \
             {needs}, or lower `connections` in [server.caps]"
        );
    }
}
