//! What of `[server]` holds from the next start on, though the file says it now.

use super::ServerConfig;

impl ServerConfig {
    /// This one as far as it can be put in place of `old` while the server runs: who may ask, who is believed, what
    /// peers may take, how long an end waits. The rest is `old`'s.
    pub(crate) fn in_place_of(&self, old: &Self) -> Self {
        Self {
            tokens: self.tokens.clone(),
            admin_token: self.admin_token.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            caps: self.caps,
            drain: self.drain,
            hosts: self.hosts.clone(),
            proxy_header: self.proxy_header,
            has_ad_hoc_rules: self.has_ad_hoc_rules,
            ..old.clone()
        }
    }

    /// The keys of what cannot, and is not as in `old`.
    pub(crate) fn needs_restart(&self, old: &Self) -> Vec<&'static str> {
        let changed = [
            ("resp", self.resp != old.resp),
            ("http", self.http != old.http),
            ("grpc", self.grpc != old.grpc),
            ("admin", self.admin != old.admin),
            ("tls", self.tls != old.tls),
            ("admin_tls", self.admin_tls != old.admin_tls),
            ("insecure", self.is_insecure != old.is_insecure),
            ("snapshot", self.snapshot != old.snapshot),
            ("watch", self.is_watching != old.is_watching),
            ("stay_awake", self.stay_awake != old.stay_awake),
            ("throttle_max_keys", self.throttle_max_keys != old.throttle_max_keys),
            ("rule_max_keys", self.rule_max_keys != old.rule_max_keys),
        ];
        changed.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SnapshotConfig, TlsConfig, read};

    #[test]
    fn every_key_of_the_server_changes_at_once_or_needs_a_restart() {
        let lines = [
            ("resp = \"off\"", "resp"),
            ("http = \"off\"", "http"),
            ("grpc = \"off\"", "grpc"),
            ("admin = \"off\"", "admin"),
            ("insecure = true", "insecure"),
            ("watch = true", "watch"),
            ("stay_awake = \"1us\"", "stay_awake"),
            ("throttle_max_keys = 9", "throttle_max_keys"),
            ("rule_max_keys = 9", "rule_max_keys"),
            ("trusted_proxies = [\"10.0.0.0/8\"]", ""),
            ("hosts = [\"tidegate.internal\"]", ""),
            ("proxy_header = \"forwarded\"", ""),
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
    fn what_names_files_needs_a_restart() {
        let old = ServerConfig::default();
        let tls = TlsConfig { cert: "cert".into(), key: "key".into(), client_ca: None };
        let snapshot = SnapshotConfig { path: "debts".into(), every: old.drain };
        let new = ServerConfig {
            tls: Some(tls.clone()),
            admin_tls: Some(tls),
            snapshot: Some(snapshot),
            ..old.clone()
        };
        assert_eq!(new.needs_restart(&old), ["tls", "admin_tls", "snapshot"]);
        assert!(new.in_place_of(&old).tls.is_none());
    }
}
