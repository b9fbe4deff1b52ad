//! Which settings a reload changes at once, and which need a restart.

use super::error::ConfigErrors;
use super::limit::LimitConfig;
use super::server::{ServerConfig, TlsConfig};
use super::settings::Config;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

impl Config {
    /// Returns this configuration, with the settings of `old` where a change needs a restart.
    #[must_use]
    pub fn in_place_of(self, old: &Self) -> Self {
        let before = by_name(old);
        let is_shared = old.store.is_some();
        let limits = self.limits.into_iter().map(|limit| match before.get(&*limit.name) {
            Some(before) => limit.in_place_of(before, is_shared),
            None => limit,
        });
        Self { limits: limits.collect(), server: self.server.in_place_of(&old.server), ..self }
    }

    /// Returns the settings that differ from `old` and need a restart: keys of `[server]`, and `limits.NAME.KEY`.
    pub fn needs_restart(&self, old: &Self) -> Vec<String> {
        let before = by_name(old);
        let server = self.server.needs_restart(&old.server).into_iter().map(str::to_owned);
        let limits =
            self.limits.iter().filter_map(|limit| Some((limit, before.get(&*limit.name)?)));
        let limits = limits.flat_map(|(limit, before)| {
            let keys = limit.needs_restart(before, old.store.is_some());
            keys.map(|key| format!("limits.{}.{key}", limit.name))
        });
        server.chain(limits).collect()
    }

    /// Returns `new` if it may take the place of this configuration while the server runs.
    ///
    /// # Errors
    ///
    /// If listeners would no longer be protected, or the store is another one.
    pub fn check_reload(&self, new: Self, file: &Path) -> Result<Self, ConfigErrors> {
        match self.opened_by(&new).or_else(|| self.moved_by(&new)) {
            None => Ok(new),
            Some(message) => {
                Err(ConfigErrors { sources: new.sources, ..ConfigErrors::whole(file, message) })
            }
        }
    }

    /// Returns why `new` must not take effect: on a listener that other machines can reach, clients would no longer need a
    /// token or a certificate. A missing line in the file must not remove access control.
    fn opened_by(&self, new: &Self) -> Option<String> {
        let (old, new) = (&self.server, new.server.in_place_of(&self.server));
        let is_open = |addr: Option<SocketAddr>| addr.is_some_and(|addr| !addr.ip().is_loopback());
        let is_opened = new.tokens.is_empty()
            && !new.needs_certificate()
            && [old.resp, old.http, old.grpc].into_iter().any(is_open);
        let is_admin_opened =
            new.admin_token.is_none() && !new.admin_needs_certificate() && is_open(old.admin);
        if old.is_insecure || !(is_opened || is_admin_opened) {
            return None;
        }
        let (token, table) =
            if is_opened { ("tokens", "tls") } else { ("admin_token", "admin_tls") };
        Some(format!(
            "the file no longer sets `{token}` in [server.auth] or `client_ca` in [server.{table}], and other \
             machines can connect: set one of them, or restart with --insecure"
        ))
    }

    /// Returns why `new` cannot take effect: it names another store, which does not have the counts of this one.
    fn moved_by(&self, new: &Self) -> Option<String> {
        let message = "[store] has changed, which needs a restart: undo the change, or restart";
        (self.store != new.store).then(|| message.to_owned())
    }
}

fn by_name(config: &Config) -> HashMap<&str, &LimitConfig> {
    config.limits.iter().map(|limit| (&*limit.name, limit)).collect()
}

impl LimitConfig {
    /// Returns this limit, with the settings of `old` that its key store was created with.
    fn in_place_of(self, old: &Self, is_shared: bool) -> Self {
        let Self { max_keys, overflow, .. } = *old;
        let (on_error, deadline) =
            if is_shared { (old.on_error, old.deadline) } else { (self.on_error, self.deadline) };
        Self { max_keys, overflow, on_error, deadline, ..self }
    }

    /// Returns the keys that differ from `old` and need a restart. Without a store, `on_error` and `deadline` have no
    /// effect.
    fn needs_restart(&self, old: &Self, is_shared: bool) -> impl Iterator<Item = &'static str> {
        let changed = [
            ("max_keys", self.max_keys != old.max_keys),
            ("overflow", self.overflow != old.overflow),
            ("on_error", is_shared && self.on_error != old.on_error),
            ("deadline", is_shared && self.deadline != old.deadline),
        ];
        changed.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key))
    }
}

impl ServerConfig {
    /// Returns this configuration, with the settings of `old` where a change needs a restart. A reload changes access control,
    /// trusted proxies, maximums, certificates, and the time that a shutdown waits.
    #[must_use]
    pub fn in_place_of(&self, old: &Self) -> Self {
        Self {
            tokens: self.tokens.clone(),
            admin_token: self.admin_token.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            caps: self.caps,
            drain: self.drain,
            hosts: self.hosts.clone(),
            proxy_header: self.proxy_header,
            tls: tls_in_place(self.tls.as_ref(), old.tls.as_ref()),
            admin_tls: tls_in_place(self.admin_tls.as_ref(), old.admin_tls.as_ref()),
            escaped_slash: self.escaped_slash,
            has_ad_hoc_rules: self.has_ad_hoc_rules,
            ..old.clone()
        }
    }

    /// Returns the keys that differ from `old` and need a restart.
    pub fn needs_restart(&self, old: &Self) -> Vec<&'static str> {
        let changed = [
            ("resp", self.resp != old.resp),
            ("http", self.http != old.http),
            ("grpc", self.grpc != old.grpc),
            ("admin", self.admin != old.admin),
            ("tls", !is_same_kind(self.tls.as_ref(), old.tls.as_ref())),
            ("admin_tls", !is_same_kind(self.admin_tls.as_ref(), old.admin_tls.as_ref())),
            ("insecure", self.is_insecure != old.is_insecure),
            ("snapshot", self.snapshot != old.snapshot),
            ("watch", self.is_watching != old.is_watching),
            ("throttle_max_keys", self.throttle_max_keys != old.throttle_max_keys),
            ("rule_max_keys", self.rule_max_keys != old.rule_max_keys),
        ];
        changed.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key)).collect()
    }
}

/// Returns the new certificates, unless TLS or client certificates would be turned on or off: that needs a restart, because
/// the clients of open connections have not shown a certificate.
fn tls_in_place(new: Option<&TlsConfig>, old: Option<&TlsConfig>) -> Option<TlsConfig> {
    if is_same_kind(new, old) { new.cloned() } else { old.cloned() }
}

fn is_same_kind(new: Option<&TlsConfig>, old: Option<&TlsConfig>) -> bool {
    let kind = |tls: Option<&TlsConfig>| tls.map(|tls| tls.client_ca.is_some());
    kind(new) == kind(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        Mode, OnError, SnapshotConfig,
        tests::{read, tls},
    };
    use std::time::Duration;
    use tidegate_testbed::CertificateFiles as Files;

    #[test]
    fn every_key_of_the_server_changes_at_once_or_needs_a_restart() {
        let lines = [
            ("resp = \"off\"", "resp"),
            ("http = \"off\"", "http"),
            ("grpc = \"off\"", "grpc"),
            ("admin = \"off\"", "admin"),
            ("insecure = true", "insecure"),
            ("watch = true", "watch"),
            ("throttle_max_keys = 9", "throttle_max_keys"),
            ("rule_max_keys = 9", "rule_max_keys"),
            ("trusted_proxies = [\"10.0.0.0/8\"]", ""),
            ("hosts = [\"tidegate.internal\"]", ""),
            ("proxy_header = \"forwarded\"", ""),
            ("escaped_slash = { x-original = \"decode\" }", ""),
            ("drain = \"1s\"", ""),
            ("ad_hoc_rules = false", ""),
            ("caps = { connections = 9 }", ""),
            ("auth = { tokens = [\"secret\"], admin_token = \"operator\" }", ""),
        ];
        let old = ServerConfig::default();
        for (line, key) in lines {
            let new = read(&format!("[server]\n{line}\n"), "t.toml").unwrap().server;
            let needs = new.needs_restart(&old);
            assert_eq!(needs, if key.is_empty() { vec![] } else { vec![key] }, "{line}");
            let is_as_before = format!("{:?}", new.in_place_of(&old)) == format!("{old:?}");
            assert_eq!(is_as_before, !key.is_empty(), "{line}");
            assert!(new.needs_restart(&new).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_setting_that_needs_a_restart_is_reported_until_it_is_undone() {
        let limit =
            |more: &str| read(&format!("[limits.a]\nrule = \"1/s\"\n{more}\n"), "t.toml").unwrap();
        let old = limit("max_keys = 7");
        let changed =
            limit("max_keys = 8\noverflow = \"deny\"\nmode = \"shadow\"\non_error = \"deny\"");
        assert_eq!(changed.needs_restart(&old), ["limits.a.max_keys", "limits.a.overflow"]);
        let running = changed.clone().in_place_of(&old);
        assert_eq!((running.limits[0].max_keys, running.limits[0].mode), (Some(7), Mode::Shadow));
        assert_eq!(changed.needs_restart(&running), ["limits.a.max_keys", "limits.a.overflow"]);
        assert!(old.needs_restart(&running).is_empty(), "the change is undone");

        let shared = |more: &str| {
            let store = "[store]\nurl = \"redis://h\"\n";
            let limit = format!("[limits.a]\nrule = \"1/s\"\n{more}\n");
            read(&format!("{store}{limit}"), "t.toml").unwrap()
        };
        let (old, changed) = (shared(""), shared("on_error = \"deny\"\ndeadline = \"2ms\""));
        assert_eq!(changed.needs_restart(&old), ["limits.a.on_error", "limits.a.deadline"]);
        assert_eq!(changed.in_place_of(&old).limits[0].on_error, OnError::Local);
    }

    #[test]
    fn turning_tls_on_or_off_needs_a_restart_and_new_certificates_do_not() {
        let (files, others) = (Files::new(), Files::new());
        let snapshot = SnapshotConfig { path: "debts".into(), every: Duration::from_secs(1) };
        let without = ServerConfig { snapshot: Some(snapshot), ..ServerConfig::default() };
        let with = ServerConfig {
            tls: Some(tls(&files, "")),
            admin_tls: Some(tls(&files, "")),
            ..ServerConfig::default()
        };
        assert_eq!(with.needs_restart(&without), ["tls", "admin_tls", "snapshot"]);
        assert!(with.in_place_of(&without).tls.is_none());
        assert!(without.in_place_of(&with).admin_tls.is_some());
        let changed = ServerConfig { tls: Some(tls(&others, "")), ..with.clone() };
        assert!(changed.needs_restart(&with).is_empty());
        assert_eq!(changed.in_place_of(&with).tls.unwrap().cert, tls(&others, "").cert);
        let mutual =
            ServerConfig { tls: Some(tls(&others, "client_ca = \"cert.pem\"")), ..with.clone() };
        for (new, old) in [(&mutual, &with), (&with, &mutual)] {
            assert_eq!(
                new.needs_restart(old),
                ["tls"],
                "clients of open connections have shown no certificate"
            );
            assert_eq!(new.in_place_of(old).needs_certificate(), old.needs_certificate());
        }
    }
}
