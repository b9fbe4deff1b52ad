//! The checks of a configuration before the server binds a socket.
//!
//! Always   `serve`, `check` and reloads use these functions, so they accept the same configurations.

use super::command_line::CommandLine;
use super::error::ConfigErrors;
use super::listener::{Protocol, conflict};
use super::read::{load, load_again};
use super::server::{ServerConfig, TlsConfig};
use super::settings::{CheckUrl, Config};
use super::source::kind_of;
use std::net::SocketAddr;
use std::path::Path;
use tidegate::snapshot::Snapshot;

/// Reads the configuration of a server that starts with this command line, and checks that it can start.
pub fn for_start(
    file: Option<&Path>,
    command_line: &CommandLine,
    check_url: CheckUrl,
) -> Result<Config, ConfigErrors> {
    let config = file.map_or_else(|| Ok(Config::default()), |file| load(file, check_url))?;
    completed(config, file, command_line)
}

/// Reads the configuration again for a running server. The file must be a regular one.
pub fn for_reload(
    file: &Path,
    command_line: &CommandLine,
    check_url: CheckUrl,
) -> Result<Config, ConfigErrors> {
    completed(load_again(file, check_url)?, Some(file), command_line)
}

fn completed(
    mut config: Config,
    file: Option<&Path>,
    command_line: &CommandLine,
) -> Result<Config, ConfigErrors> {
    config.command_line = command_line.clone();
    command_line.apply(&mut config.server);
    match config.server.refusal().or_else(|| config.overwritten()) {
        None => Ok(config),
        Some(message) => {
            let file = file.unwrap_or(Path::new("the command line"));
            Err(ConfigErrors { sources: config.sources, ..ConfigErrors::whole(file, message) })
        }
    }
}

impl Config {
    /// Returns why the snapshot must not be written to its path: it would overwrite another file.
    fn overwritten(&self) -> Option<String> {
        let snapshot = self.server.snapshot.as_ref().filter(|_| self.store.is_none())?;
        Snapshot::files(&snapshot.path).iter().find_map(|file| {
            let shown = file.display();
            if let Some(source) = self.sources.same_file(file) {
                let source = source.display();
                return Some(format!(
                    "the snapshot would overwrite {source}, which belongs to the configuration: name another file in \
                     `path` of [server.snapshot] or --snapshot"
                ));
            }
            let kind = file.metadata().ok()?.file_type();
            (!kind.is_file()).then(|| {
                let kind = kind_of(kind);
                format!("the snapshot would overwrite {shown}, which is {kind}: name a regular file, or one that does not exist")
            })
        })
    }
}

impl ServerConfig {
    /// Returns why a server does not start with this configuration, if it does not.
    pub fn refusal(&self) -> Option<String> {
        let listeners: Vec<(Protocol, SocketAddr)> = self.listeners().collect();
        if listeners.is_empty() {
            return Some("every listener is off: turn at least one on".to_owned());
        }
        let unguarded = listeners.iter().find_map(|(wire, addr)| self.unguarded(*wire, *addr));
        unguarded.or_else(|| {
            listeners.iter().enumerate().find_map(|(index, (wire, addr))| {
                let (other, _) = listeners[..index].iter().find(|(_, it)| conflict(*it, *addr))?;
                Some(format!(
                    "{other} and {wire} would listen on the same address and port: {addr}"
                ))
            })
        })
    }

    /// Returns the listeners that are on, and their addresses.
    pub fn listeners(&self) -> impl Iterator<Item = (Protocol, SocketAddr)> {
        let all = [
            (Protocol::Resp, self.resp),
            (Protocol::Http, self.http),
            (Protocol::Grpc, self.grpc),
            (Protocol::Admin, self.admin),
        ];
        all.into_iter().filter_map(|(wire, addr)| Some((wire, addr?)))
    }

    /// Returns the TLS settings of a listener.
    pub fn tls_of(&self, wire: Protocol) -> Option<&TlsConfig> {
        if wire == Protocol::Admin { self.admin_tls.as_ref() } else { self.tls.as_ref() }
    }

    /// Returns why a listener must not start without access control, if other machines can reach it.
    fn unguarded(&self, wire: Protocol, addr: SocketAddr) -> Option<String> {
        let (is_guarded, key, table) = match wire {
            Protocol::Admin => {
                let is_guarded = self.admin_token.is_some() || self.admin_needs_certificate();
                (is_guarded, "admin_token", "admin_tls")
            }
            _ => (!self.tokens.is_empty() || self.needs_certificate(), "tokens", "tls"),
        };
        if addr.ip().is_loopback() || is_guarded || self.is_insecure {
            return None;
        }
        Some(format!(
            "{wire} would listen on {addr}, which other machines can reach, without a token: set `{key}` \
             in [server.auth] or `client_ca` in [server.{table}], listen on 127.0.0.1, or allow it with --insecure"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        ListenAddr,
        tests::{accept, read},
    };
    use tidegate_testbed::CertificateFiles as Files;

    fn refusal(text: &str) -> Option<String> {
        read(text, "t.toml").unwrap().server.refusal()
    }

    #[test]
    fn a_public_listener_needs_a_token_or_a_certificate() {
        let refused = refusal("[server]\nhttp = \"0.0.0.0:8080\"\n").expect("it is open");
        assert!(refused.contains("`tokens`") && refused.contains("0.0.0.0:8080"), "{refused}");
        let refused = refusal("[server]\nadmin = \"[::]:9091\"\nauth.tokens = [\"a\"]\n");
        assert!(refused.is_some_and(|it| it.contains("`admin_token`")));
        assert_eq!(refusal("[server]\nhttp = \"0.0.0.0:8080\"\nauth.tokens = [\"a\"]\n"), None);
        assert_eq!(refusal("[server]\nhttp = \"0.0.0.0:8080\"\ninsecure = true\n"), None);
        assert_eq!(refusal(""), None);
    }

    #[test]
    fn a_server_without_listeners_is_refused() {
        let off = "[server]\nresp = \"off\"\nhttp = \"off\"\ngrpc = \"off\"\nadmin = \"off\"\n";
        assert!(refusal(off).is_some_and(|it| it.contains("every listener is off")));
    }

    #[test]
    fn the_command_line_is_checked_together_with_the_file() {
        let at = |text: &str| Some(ListenAddr::At(text.parse().unwrap()));
        let open = CommandLine { http: at("0.0.0.0:1"), ..CommandLine::default() };
        let refused = for_start(None, &open, accept).unwrap_err().to_string();
        assert!(
            refused.starts_with("the command line: HTTP would listen on 0.0.0.0:1"),
            "{refused}"
        );
        let meant = CommandLine { is_insecure: true, ..open.clone() };
        assert!(for_start(None, &meant, accept).is_ok());
        let same = CommandLine { grpc: at("127.0.0.1:6380"), ..CommandLine::default() };
        let refused = for_start(None, &same, accept).unwrap_err().to_string();
        assert!(refused.contains("RESP and gRPC would listen on the same address"), "{refused}");
    }

    /// Returns the error, or an empty text.
    fn start(directory: &Files, snapshot: &str) -> String {
        let text = format!(
            "[server]\nauth.tokens_file = \"tokens\"\n[server.snapshot]\npath = {snapshot:?}\n"
        );
        let file = directory.path("t.snapshot.part");
        std::fs::write(&file, text).unwrap();
        let started = for_start(Some(&file), &CommandLine::default(), accept);
        started.map_or_else(|errors| errors.to_string(), |_| String::new())
    }

    #[test]
    fn a_snapshot_never_overwrites_another_file() {
        let directory = Files::new();
        std::fs::write(directory.path("tokens"), "a\n").unwrap();
        std::fs::write(directory.path("state"), "TIDEGATE").unwrap();
        std::fs::write(directory.path("empty"), "").unwrap();
        std::os::unix::fs::symlink("tokens", directory.path("link")).unwrap();
        for (snapshot, overwritten) in [
            ("t.snapshot.part", "t.snapshot.part, which belongs to the configuration"),
            ("t.snapshot", "t.snapshot.part, which belongs to the configuration"),
            ("./tokens", "tokens, which belongs to the configuration"),
            ("link", "tokens, which belongs to the configuration"),
            ("/dev/null", "/dev/null, which is a device"),
        ] {
            let error = start(&directory, snapshot);
            assert!(error.contains(overwritten), "{snapshot}: {error}");
        }
        for good in ["state", "empty", "new"] {
            assert_eq!(start(&directory, good), "", "{good}");
        }
        let snapshot = Some("/dev/null".into());
        let flag = CommandLine { snapshot, ..CommandLine::default() };
        let error = for_start(None, &flag, accept).unwrap_err().to_string();
        assert!(error.contains("/dev/null, which is a device"), "{error}");
    }
}
