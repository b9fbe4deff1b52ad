//! A directory with the files of `/` in which Linux reports load.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Removed when it is dropped.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-load-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A machine without cgroup v2, idle.
    pub(crate) fn machine() -> Self {
        let tree = Self::new();
        tree.write(
            "proc/stat",
            "cpu  0 0 0 100 0 0 0 0 0 0\ncpu0 0 0 0 50\ncpu1 0 0 0 50\nintr 7\n",
        );
        tree.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 900 kB\n");
        tree.write("proc/self/cgroup", "4:memory:/a\n1:cpu:/a\n0::/\n");
        for name in ["cpu", "memory", "io"] {
            tree.pressure(&format!("proc/pressure/{name}"), "0.00");
        }
        tree
    }

    /// The same with cgroup v2: half a processor of the two, and 1000 bytes of memory.
    pub(crate) fn container() -> Self {
        let tree = Self::machine();
        tree.write("proc/self/cgroup", "0::/app\n");
        let cgroup =
            |name: &str, text: &str| tree.write(&format!("sys/fs/cgroup/app/{name}"), text);
        cgroup("cgroup.controllers", "cpu io memory\n");
        cgroup("cpu.stat", "usage_usec 0\nuser_usec 0\n");
        cgroup("cpu.max", "50000 100000\n");
        cgroup("memory.max", "1000\n");
        cgroup("memory.current", "500\n");
        cgroup("memory.stat", "anon 1\ninactive_file 200\n");
        tree.pressure("sys/fs/cgroup/app/cpu.pressure", "0.00");
        tree.pressure("sys/fs/cgroup/app/memory.pressure", "0.00");
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }

    pub(crate) fn pressure(&self, path: &str, percent: &str) {
        let line =
            |kind: &str| format!("{kind} avg10={percent} avg60=99.00 avg300=99.00 total=1\n");
        self.write(path, &format!("{}{}", line("some"), line("full")));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
