//! The configuration, read with the server's check of the store's URL.

pub use tidegate_config::*;

use std::path::Path;
use tidegate::Timestamp;
use tidegate_redis::{Address, AddressError, Settings};

/// Reads the configuration in this text, which came from `file`.
pub fn read(text: &str, file: &str) -> Result<Config, ConfigErrors> {
    tidegate_config::read(text, file, check_url)
}

/// Reads the configuration in this file.
pub fn load(file: &Path) -> Result<Config, ConfigErrors> {
    tidegate_config::load(file, check_url)
}

/// Reads the configuration that a server with this command line starts with.
pub fn for_start(file: Option<&Path>, command_line: &CommandLine) -> Result<Config, ConfigErrors> {
    tidegate_config::for_start(file, command_line, check_url)
}

/// Reads the configuration again while the server runs.
pub fn for_reload(file: &Path, command_line: &CommandLine) -> Result<Config, ConfigErrors> {
    tidegate_config::for_reload(file, command_line, check_url)
}

/// Logs what may be wrong with a configuration.
pub(crate) fn log_warnings(config: &Config, now: Timestamp) {
    for warning in config.warnings_at(now) {
        tracing::warn!("{warning}");
    }
}

/// Checks the URL of a store, as the Redis client reads it.
pub fn check_url(url: &str) -> Result<(), String> {
    url.parse().map(|_: Address| ()).map_err(|error: AddressError| error.why.to_owned())
}

/// Returns the address of a store, and how to talk to it.
///
/// # Panics
///
/// If the configuration was not read with [`check_url`].
pub fn store_client(store: &StoreConfig) -> (Address, Settings) {
    let address = store.url.as_str().parse().expect("the URL was checked when it was read");
    let settings = Settings::default().deadline(store.deadline).connections(store.connections);
    (address, settings.prefix(&store.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_the_same_defaults_as_the_client() {
        let config = read("[store]\nurl = \"redis://h\"\n", "t.toml").unwrap();
        let (_, settings) = store_client(&config.store.unwrap());
        let default = Settings::default();
        assert_eq!(settings.deadline, default.deadline);
        assert_eq!(settings.connections, default.connections);
        assert_eq!(settings.prefix, default.prefix);
    }
}
