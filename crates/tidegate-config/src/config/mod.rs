//! The server's configuration: listeners, limits, access control.
//!
//! Always   A [`Config`] that exists is valid: every rule parses, every name is known, every file was read.
//!          Every setting has a default, so the server starts without a configuration file.

mod command_line;
mod describe;
mod error;
mod limit;
mod listener;
mod read;
mod restart;
mod server;
mod settings;
mod source;
mod startup;

pub use command_line::CommandLine;
pub use describe::describe_rule;
pub use error::{ConfigError, ConfigErrors};
pub use limit::{
    DescriptorConfig, Fallback, LimitConfig, MissingKey, OnError, THROTTLES_NAME, is_limit_name,
};
pub use listener::{ADMIN_ADDR, GRPC_ADDR, HTTP_ADDR, ListenAddr, Protocol, RESP_ADDR};
pub use read::{FILE_BYTES_MAX, load, read};
pub use server::{Caps, EscapedSlashes, ServerConfig, SnapshotConfig, TlsConfig, Token};
pub use settings::{CheckUrl, Config, StoreConfig, StoreUrl};
pub use source::Sources;
pub use startup::{for_reload, for_start};
pub use tidegate_core::diagnostics::nearest_name as near;
/// Whether a limit is enforced (B6).
pub use tidegate_http::Mode;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tidegate_testbed::CertificateFiles;

    /// Accepts every URL.
    #[expect(clippy::unnecessary_wraps, reason = "the function is a `CheckUrl`")]
    pub(crate) fn accept(_: &str) -> Result<(), String> {
        Ok(())
    }

    /// Reads a configuration without a check of the store's URL.
    pub(crate) fn read(text: &str, file: &str) -> Result<Config, ConfigErrors> {
        super::read(text, file, accept)
    }

    /// Reads `[server.tls]` with this certificate and these further lines.
    pub(crate) fn tls(files: &CertificateFiles, more: &str) -> TlsConfig {
        let text = format!("[server.tls]\n{}{more}\n", files.toml());
        read(&text, &files.path("t.toml").display().to_string()).unwrap().server.tls.unwrap()
    }
}
