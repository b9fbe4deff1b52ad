//! Finds a server's program, or names the package to install.
//!
//! Always   A missing program is a failure: a skipped test would stay green forever.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian installs each version of PostgreSQL in a directory here, with its programs in `bin`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Returns the path of a program that is part of this Debian package.
pub(crate) fn find(name: &str, package: &str) -> PathBuf {
    find_in(directories(env::var_os("PATH"), Path::new(POSTGRES_VERSIONS)), name, package)
}

/// Returns the directories of PATH, and then those that Debian does not add to it.
fn directories(path: Option<OsString>, versions: &Path) -> Vec<PathBuf> {
    let path = path.unwrap_or_default();
    let versions = fs::read_dir(versions).into_iter().flatten().flatten();
    env::split_paths(&path).chain(versions.map(|version| version.path().join("bin"))).collect()
}

fn find_in(directories: Vec<PathBuf>, name: &str, package: &str) -> PathBuf {
    let mut paths = directories.into_iter().map(|directory| directory.join(name));
    paths.find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{name} is not installed; on Debian or Ubuntu run `apt-get install {package}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

    #[test]
    #[should_panic(expected = "`apt-get install redis-server`")]
    fn a_missing_program_is_a_failure_that_says_what_to_install() {
        find_in(vec!["no-such-directory".into()], "redis-server", "redis-server");
    }

    #[test]
    fn a_program_outside_the_path_is_found_unless_the_path_has_one() {
        let versions = Directory::new();
        fs::create_dir_all(versions.join("15/bin")).unwrap();
        let off_path = versions.write("15/bin/initdb", "");
        let with = |path: &str| directories(Some(path.into()), versions.path());
        assert_eq!(find_in(with("no-such-directory"), "initdb", "postgresql"), off_path);
        let on_path = versions.write("initdb", "");
        let path = versions.path().to_str().unwrap();
        assert_eq!(find_in(with(path), "initdb", "postgresql"), on_path);
    }
}
