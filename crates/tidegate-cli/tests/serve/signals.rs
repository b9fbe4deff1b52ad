//! What it is told while it runs.

use crate::daemon::{Daemon, Directory, PATIENCE, eventually};

#[test]
fn a_bad_file_is_told_about_and_the_old_limits_stay() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.old]\nrule = \"1/day\"\n");
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.five("TIDE.CHECK old key"), (true, 0));
    directory.write("t.toml", "[limits.new]\nrule = \"2/fortnight\"\n");
    daemon.signal("HUP");
    eventually("it says so", PATIENCE, || daemon.says("not reloaded, the old configuration stays"));
    assert!(daemon.says("t.toml:2:"), "and where");
    assert_eq!(peer.five("TIDE.CHECK old key"), (false, 0), "and counts on");
    directory.write("t.toml", "[limits.old]\nrule = \"1/day\"\n[limits.new]\nrule = \"2/day\"\n");
    daemon.signal("HUP");
    eventually("it reloads", PATIENCE, || daemon.says("reloaded: 2 limits"));
    assert_eq!(peer.five("TIDE.CHECK new key"), (true, 1));
    assert_eq!(peer.five("TIDE.CHECK old key"), (false, 0), "counters stay with their name");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

#[test]
fn signals_are_heard_as_soon_as_it_has_said_where_it_listens() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.a]\nrule = \"1/day\"\n");
    for _ in 0..10 {
        let daemon = Daemon::start("", &config, &[]);
        daemon.signal("HUP");
        eventually("it reloads", PATIENCE, || daemon.says("reloaded: 1 limits"));
        daemon.signal("TERM");
        assert!(daemon.end().success());
    }
}
