//! Which configurations are valid, and which errors invalid ones get.

use std::path::Path;
use std::time::Duration;
use tidegate::limiter::Overflow;
use tidegate_config::{Config, ConfigErrors, FILE_BYTES_MAX, MissingKey, Mode, OnError};
use tidegate_http::ProxyHeader;
use tidegate_redis::{Address, AddressError};

/// The check of URLs that the server uses.
fn check_url(url: &str) -> Result<(), String> {
    url.parse().map(|_: Address| ()).map_err(|error: AddressError| error.why.to_owned())
}

fn parse(text: &str, file: &str) -> Result<Config, ConfigErrors> {
    tidegate_config::read(text, file, check_url)
}

fn load(file: &Path) -> Result<Config, ConfigErrors> {
    tidegate_config::load(file, check_url)
}

fn read(text: &str) -> Config {
    parse(text, "tidegate.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns all errors of a configuration as text.
fn wrong(text: &str) -> String {
    parse(text, "t.toml").expect_err("something is wrong").to_string()
}

/// Returns all errors of a limit with these lines.
fn wrong_limit(lines: &str) -> String {
    wrong(&format!("[limits.a]\n{lines}"))
}

#[test]
fn an_empty_configuration_is_valid() {
    let config = read("");
    assert_eq!(config.server.resp.unwrap().to_string(), "127.0.0.1:6380");
    assert!(config.limits.is_empty());
}

#[test]
fn every_setting_is_read() {
    let text = r#"
        [server]
        resp = "0.0.0.0:7000"
        grpc = "off"
        hosts = ["tidegate.internal", "gate_1"]
        trusted_proxies = ["10.0.0.0/8", "::1"]
        proxy_header = "forwarded"
        watch = true
        drain = "5s"
        insecure = true
        throttle_max_keys = 1_000
        rule_max_keys = 2_000
        [server.auth]
        tokens = ["one", "two"]
        admin_token = "three"
        [server.snapshot]
        path = "state.snapshot"
        every = "500ms"
        [server.caps]
        connections = 5
        idle = "1min"

        [limits.zebra]
        rule = "5/15min sliding-log"
        key = ["ip/24,56", "header:X-User"]
        mode = "shadow"
        when = { method = ["POST"], path = "/login*", "header:x-plan" = "free", not = { host = "Internal.*" } }
        on_missing_key = "deny"
        max_keys = 7
        overflow = "deny"
        fallback = { status = 200, content_type = "application/json", body = "{}" }
        [limits.ant]
        rule = "1/s"
        domain = "edge"
        descriptor = ["tenant", "path=/v1/*"]
        replaces = ["zebra"]
    "#;
    let Config { server, limits, .. } = read(text);
    assert_eq!(server.resp.unwrap().port(), 7000);
    assert_eq!(server.grpc, None);
    assert_eq!(server.http.unwrap().port(), 8080);
    assert_eq!(server.hosts, ["tidegate.internal", "gate_1"]);
    assert_eq!(server.trusted_proxies.len(), 2);
    assert_eq!(server.proxy_header, ProxyHeader::Forwarded);
    assert!(server.is_watching && server.is_insecure);
    assert_eq!(server.drain, Duration::from_secs(5));
    assert!(server.tokens[1].is(b"two") && server.admin_token.unwrap().is(b"three"));
    assert_eq!(server.snapshot.unwrap().every, Duration::from_millis(500));
    assert_eq!(server.caps.idle, Duration::from_secs(60));
    assert_eq!(server.caps.connections_max, 5);
    assert_eq!((server.throttle_max_keys, server.rule_max_keys), (1_000, 2_000));

    let names: Vec<&str> = limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["zebra", "ant"], "the order of the file is kept");
    let zebra = &limits[0];
    assert_eq!(zebra.rule.to_string(), "5/15min sliding-log");
    let key: Vec<String> = zebra.key.iter().map(ToString::to_string).collect();
    assert_eq!(key, ["ip/24,56", "header:x-user"]);
    assert_eq!((zebra.mode, zebra.on_missing_key), (Mode::Shadow, MissingKey::Deny));
    assert_eq!((zebra.max_keys, zebra.overflow), (Some(7), Overflow::Deny));
    assert_eq!(zebra.when.len(), 4);
    assert_eq!(zebra.when[3].patterns[0].0, "internal.*");
    assert!(zebra.when[3].is_negated && !zebra.when[2].is_negated);
    assert_eq!(zebra.fallback.as_ref().unwrap().body, "{}");
    let descriptor = limits[1].descriptor.as_ref().unwrap();
    assert_eq!(descriptor.entries[1].to_string(), "path=/v1/*");
    assert_eq!(descriptor.replaces, ["zebra"]);
}

#[test]
fn the_setting_stay_awake_of_earlier_versions_is_accepted_with_a_warning() {
    let Config { warnings, .. } = read("[server]\nstay_awake = \"50us\"\n");
    let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let expected = "tidegate.toml:2:14: `stay_awake` has no effect any more\n  = remove it";
    assert_eq!(shown, [expected]);
    assert!(read("[server]\n").warnings.is_empty());
}

#[test]
fn a_misspelled_key_is_shown_with_the_right_one() {
    let shown = wrong("[limits.login]\nruel = \"5/s\"\nmod = 'shadow'\n");
    assert_eq!(
        shown,
        "t.toml:1:1: `rule` is missing
  | [limits.login]
  | ^^^^^^^^^^^^^^
  = such as `rule = \"100/s burst 20\"`

t.toml:2:1: unknown key `ruel` in login
  | ruel = \"5/s\"
  | ^^^^
  = did you mean `rule`?

t.toml:3:1: unknown key `mod` in login
  | mod = 'shadow'
  | ^^^
  = did you mean `mode`?"
    );
}

#[test]
fn a_bad_rule_is_pointed_at_inside_its_quotes() {
    let shown = wrong_limit("rule = \"100/s brust 20\"");
    assert_eq!(
        shown,
        "t.toml:2:15: unknown word `brust`: did you mean `burst`?
  | rule = \"100/s brust 20\"
  |               ^^^^^"
    );
    let escaped = wrong_limit(r#"rule = "100/s br\u0075st 20""#);
    assert!(
        escaped.starts_with("t.toml:2:8: "),
        "with escapes, the error is in the whole text: {escaped}"
    );
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_the_file() {
    let shown = wrong("[server]\nresp = 1\nwatch = \"yes\"\n[limits.a]\nrule = \"x\"\n[limit.b]\n");
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("t.toml")).collect();
    assert_eq!(
        lines,
        [
            "t.toml:2:8: `resp` must be a text in quotes, not a number",
            "t.toml:3:9: `watch` must be true or false, not a text",
            "t.toml:5:9: `x` is not a rate such as `100/s`, or `concurrency 5`",
            "t.toml:6:2: unknown key `limit` in the file",
        ]
    );
}

#[test]
fn duplicates_and_invalid_toml_are_reported_with_their_line() {
    assert!(wrong("[limits.a]\nrule = \"1/s\"\nrule = \"2/s\"\n").starts_with("t.toml:3:1: "));
    assert!(wrong("[limits.a]\n[limits.a]\n").starts_with("t.toml:2:"));
    assert!(wrong("a = \n").starts_with("t.toml:1:"));
    let limit = "rule = \"1/s\"\ndomain = \"d\"\ndescriptor = [\"k=v\"]\n";
    let twins = wrong(&format!("[limits.a]\n{limit}[limits.b]\n{limit}"));
    assert!(twins.starts_with("t.toml:5:9: `a` counts the same descriptor"), "{twins}");
}

#[test]
fn times_need_units_and_numbers_have_ranges() {
    let server = |line: &str| wrong(&format!("[server]\n{line}"));
    assert!(server("drain = 30").contains("`drain` must be a text with a unit"));
    assert!(server("drain = \"30\"").contains("a duration needs a unit"));
    assert!(server("drain = \"30m\"").contains("did you mean \"30min\"?"));
    assert!(server("drain = \"2h\"").contains("`drain` must be from 0s to 1h"));
    for number in ["0", "-1", "1_000_000_001", "99999999999999999999"] {
        let shown = server(&format!("throttle_max_keys = {number}"));
        assert!(shown.contains("`throttle_max_keys` must be from 1 to 1000000000"), "{shown}");
    }
    assert!(server("throttle_max_keys = 1.5").contains("not a number with a fraction"));
    read("[server]\nthrottle_max_keys = 1_000_000_000");
}

#[test]
fn addresses_and_hosts_are_checked() {
    let server = |line: &str| wrong(&format!("[server]\n{line}"));
    assert!(server("http = \"8080\"").contains("write \"127.0.0.1:8080\""));
    assert!(server("http = \"localhost:8080\"").contains("write \"127.0.0.1:8080\""));
    assert!(server("http = \"*:8080\"").contains("\"[::]:8080\""));
    assert!(
        server("http = \"127.0.0.1:6380\"").contains("`http` and `resp` have the same address")
    );
    let shown = server("proxy_header = \"x-forwarded\"");
    assert!(
        shown.contains("`proxy_header` must be \"either\" or \"x-forwarded-for\" or \"forwarded\""),
        "{shown}"
    );
    assert!(shown.contains("did you mean \"forwarded\"?"), "{shown}");
    for host in ["", "tidegate:8080", "http://tidegate", "*", "[::1]"] {
        let shown = server(&format!("hosts = [\"{host}\"]"));
        assert!(shown.contains("t.toml:2:10: this is not a host"), "{shown}");
    }
    let hosts = |number: usize| format!("hosts = [{}]", "\"a\",".repeat(number));
    assert_eq!(read(&format!("[server]\n{}", hosts(64))).server.hosts.len(), 64);
    assert!(server(&hosts(65)).contains("at most 64 entries"));
    assert!(server("trusted_proxies = [\"10.0.0.1/8\"]").contains("did you mean \"10.0.0.0/8\"?"));
    assert!(server("trusted_proxies = [\"proxy\"]").contains("t.toml:2:20: this is not a network"));
}

#[test]
fn requests_in_flight_are_not_counted_for_envoy() {
    let shown = wrong_limit("rule = \"concurrency 5\"\ndomain = \"d\"\ndescriptor = [\"a\"]");
    assert_eq!(
        shown,
        "t.toml:2:8: Envoy does not report the end of a request, so requests in flight cannot be counted
  | rule = \"concurrency 5\"
  |        ^^^^^^^^^^^^^^^
  = choose a rate such as `100/s`, or remove `domain` and `descriptor`"
    );
}

#[test]
fn no_limit_has_the_name_of_cl_throttle() {
    let shown = wrong("[limits.\"CL.THROTTLE\"]\nrule = \"1/s\"\n");
    assert!(
        shown.starts_with("t.toml:1:9: this name stands for the command CL.THROTTLE in metrics"),
        "{shown}"
    );
    read("[limits.\"CL.THROTTLE-2\"]\nrule = \"1/s\"\n");
}

#[test]
fn a_fallback_without_a_status_denies() {
    let config = read("[limits.a]\nrule = \"1/s\"\nfallback = { body = \"later\" }\n");
    let fallback = config.limits[0].fallback.as_ref().unwrap();
    assert_eq!(fallback.denial_status().map(|status| status.as_u16()), Some(429));
}

#[test]
fn settings_of_a_limit_that_contradict_each_other_are_refused() {
    let with = |line: &str| wrong_limit(&format!("rule = \"1/s\"\n{line}"));
    assert!(with("descriptor = [\"a\"]").contains("`descriptor` needs a `domain`"));
    assert!(with("domain = \"d\"").contains("`domain` needs a `descriptor`"));
    assert!(with("replaces = [\"b\"]").contains("`replaces` needs a `descriptor`"));
    assert!(with("key = \"header:\"").contains("`header` needs a name"));
    assert!(with("key = [\"ip\", \"coookie:a\"]").contains("t.toml:3:15: unknown key part"));
    assert!(with("key = \"descriptor:a\"").contains("needs a `descriptor`"));
    assert!(with("when = { method = \"post\" }").contains("write \"POST\""));
    assert!(with("when = { path = \"login\" }").contains("write \"/login\""));
    assert!(with("when = { haeder = \"x\" }").contains("did you mean `header`?"));
    assert!(with("when = { path = [] }").contains("at least one pattern"));
    assert!(with("when = { not = { not = { path = \"/\" } } }").contains("unknown key part `not`"));
    assert!(with("when = { ip = \"10.0.0.1/8\" }").contains("10.0.0.0/8"));
    assert!(with("mode = \"shadwo\"").contains("did you mean \"shadow\"?"));
    assert!(with("fallback = { status = 42 }").contains("`status` must be from 200 to 599"));
    let envoy = "domain = \"d\"\ndescriptor = [\"a\"]\n";
    assert!(with(&format!("{envoy}replaces = [\"z\"]")).contains("no limit has this name"));
    assert!(with(&format!("{envoy}replaces = [\"a\"]")).contains("cannot replace itself"));
    assert!(with(&format!("{envoy}key = \"descriptor:b\"")).contains("has no entry `b`"));
    let mixed = format!("{envoy}key = [\"descriptor:a\", \"ip\"]");
    assert!(with(&mixed).contains("Envoy does not send `ip`"));
    for (entry, why) in [("=v", "an entry needs a key"), ("k=", "the value after `=` is missing")] {
        assert!(with(&format!("domain = \"d\"\ndescriptor = [\"{entry}\"]")).contains(why));
    }
}

#[test]
fn names_are_plain_and_not_too_long() {
    let named = |name: &str| parse(&format!("[limits.{name:?}]\nrule = \"1/s\""), "t");
    assert!(named(&"a".repeat(64)).is_ok());
    assert!(named("A_z.0-9").is_ok());
    assert!(named(&"a".repeat(65)).is_err());
    for name in ["", "a b", "ä", "a/b"] {
        assert!(named(name).is_err(), "{name:?} was accepted");
    }
}

#[test]
fn secrets_are_never_shown() {
    for text in [
        "[server.auth]\ntokens = [\n\"hunter2\", 5]",
        "[server.auth]\ntoken = \"hunter2\"",
        "[server.auth]\nadmin_token = \"hunter2",
        "server.auth.tokens = \"hunter2\"",
    ] {
        let shown = wrong(text);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let config = read("[server.auth]\ntokens = [\"hunter2\"]");
    assert!(!format!("{config:?}").contains("hunter2"));
}

/// A certificate that signs itself, and its key.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("there is randomness");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

#[test]
fn another_language_is_named() {
    for yaml in [
        "limits:\n  login:\n    rule: 5/min\n",
        "---\nserver: {}\n",
        "# ours\n\n- name: login\n  rule: 5/min\n",
        "domain: edge\ndescriptors: []\n",
    ] {
        let error = wrong(yaml);
        assert!(error.contains("this looks like YAML, but a configuration is TOML"), "{error}");
        assert_eq!(error.matches("t.toml").count(), 1, "and nothing else: {error}");
    }
    assert!(wrong("{\n  \"limits\": {}\n}\n").contains("this looks like JSON"));
    for toml in ["[limits.a\nrule = \"1/s\"\n", "a = b:c\n", "http://x:1\n", "rule = \"a: b\n"] {
        let error = wrong(toml);
        assert!(!error.contains("looks like"), "{error}");
    }
}

#[test]
fn an_empty_key_is_refused() {
    let error = wrong_limit("rule = \"1/s\"\nkey = []");
    assert!(
        error.starts_with("t.toml:3:7: `key` is empty") && error.contains("or remove `key`"),
        "{error}"
    );
}

#[test]
fn authorization_is_no_key_and_no_condition_if_it_contains_the_servers_tokens() {
    let limit = |more: &str| format!("[limits.a]\nrule = \"1/s\"\n{more}\n");
    let auth = "[server.auth]\ntokens = [\"s3cret\"]\n";
    for more in [
        "key = \"header:Authorization\"",
        "key = [\"path\", \"header:authorization\"]",
        "when = { not = { \"header:authorization\" = \"*\" } }",
    ] {
        let error = wrong(&(limit(more) + auth));
        assert!(error.starts_with("t.toml:3:"), "{error}");
        assert!(
            error.contains("`header:x-client-authorization`") && !error.contains("s3cret"),
            "{error}"
        );
        read(&limit(more));
    }
    read(&(limit("key = \"header:x-api-key\"") + auth));
}

#[test]
fn a_token_that_no_client_can_send_is_refused() {
    for token in ["two words", "# comment", " padded", "a\\nb"] {
        let error = wrong(&format!("[server.auth]\ntokens = [\"{token}\"]\n"));
        assert!(error.contains("this is not a valid token") && !error.contains("words"), "{error}");
    }
}

#[test]
fn an_invalid_certificate_is_reported_with_its_line() {
    let directory = std::env::temp_dir().join(format!("tidegate-pem-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let ((certificate, key), (_, other)) = (certificate(), certificate());
    for (file, text) in [("cert.pem", &*certificate), ("key.pem", &key), ("other.pem", &other)] {
        std::fs::write(directory.join(file), text).unwrap();
    }
    std::fs::write(directory.join("garbage.pem"), "garbage").unwrap();
    let file = directory.join("t.toml").display().to_string();
    let read = |cert: &str, key: &str, ca: &str| {
        let text =
            format!("[server.tls]\ncert = \"{cert}\"\nkey = \"{key}\"\nclient_ca = \"{ca}\"\n");
        parse(&text, &file).map(|_| ()).map_err(|errors| errors.to_string())
    };
    assert_eq!(read("cert.pem", "key.pem", "cert.pem"), Ok(()));
    for (cert, key, ca, line, why) in [
        ("garbage.pem", "key.pem", "cert.pem", ":2:8: ", "garbage.pem has no certificate"),
        ("cert.pem", "garbage.pem", "cert.pem", ":3:7: ", "garbage.pem has no private key"),
        (
            "cert.pem",
            "other.pem",
            "cert.pem",
            ":3:7: ",
            "other.pem is not the key of the certificate",
        ),
        ("cert.pem", "key.pem", "garbage.pem", ":4:13: ", "garbage.pem has no authority"),
    ] {
        let refused = read(cert, key, ca).unwrap_err();
        assert!(refused.contains(line) && refused.contains(why), "{refused}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn paths_are_relative_to_the_configuration() {
    let directory = std::env::temp_dir().join(format!("tidegate-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("t.toml");
    let (certificate, key) = certificate();
    std::fs::write(directory.join("cert.pem"), format!("{certificate}{key}")).unwrap();
    std::fs::write(directory.join("tokens"), "one\n\n two \n").unwrap();
    std::fs::write(&file, "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n").unwrap();
    let shown = load(&file).unwrap_err().to_string();
    assert!(shown.contains(":3:7: ") && shown.contains("key.pem cannot be read"), "{shown}");

    let text = "[server]\ntls = { cert = \"cert.pem\", key = \"cert.pem\" }\nauth.tokens_file = \"tokens\"\n";
    std::fs::write(&file, text).unwrap();
    let server = load(&file).unwrap().server;
    assert_eq!(server.tls.unwrap().cert, directory.join("cert.pem"));
    assert!(server.tokens.len() == 2 && server.tokens[1].is(b"two"));
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(load(&file).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn control_characters_are_not_shown() {
    let shown = wrong("[limits.a]\nrule = \"1/s\"\n\"\\u001b[31m\" = 1 # \u{9b}");
    assert!(!shown.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
}

#[test]
fn the_examples_in_the_guide_are_valid() {
    let page = include_str!("../../../docs/guide/configuration.md");
    let directory = std::env::temp_dir().join(format!("tidegate-guide-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (certificate, key) = certificate();
    for (file, text) in [
        ("cert.pem", &*certificate),
        ("key.pem", &*key),
        ("ca.pem", &*certificate),
        ("tokens", "something"),
        ("admin-token", "something"),
    ] {
        std::fs::write(directory.join(file), text).unwrap();
    }
    let file = directory.join("tidegate.toml").display().to_string();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("a block ends").0)
        .collect();
    assert!(blocks.len() >= 5);
    for block in blocks {
        parse(block, &file).unwrap_or_else(|errors| panic!("{errors}"));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Returns the CPU time of this thread. Other processes share the machine.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("its first number"))
}

/// Returns the peak memory of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kb = line.trim().strip_suffix(" kB").and_then(|kb| kb.parse::<u64>().ok());
    kb.expect("a number") << 10
}

/// T57: within a second and 256 MB.
#[test]
fn a_malicious_file_is_refused_within_a_second() {
    let limit = |number: usize| format!("[limits.l{number}]\nrule = \"1/s\"\n");
    let bombs = [
        "a".repeat(FILE_BYTES_MAX + 1),
        "[".repeat(500_000),
        format!("a = {}", "[".repeat(500_000)),
        format!("a = {}", "{a = ".repeat(100_000)),
        format!("{} = 1", vec!["a"; 400_000].join(".")),
        (0..80_000).map(|n| format!("key{n} = 1")).collect::<Vec<_>>().join("\n"),
        (0..10_001).map(limit).collect(),
        format!("{} = 1", "k".repeat(1_000_000)),
        format!("[limits.a]\nrule = \"{}\"", "1".repeat(1_000_000)),
        format!("[limits.a]\nrule = \"1/s\"\nkey = [{}]", "\"ip\",".repeat(100_000)),
        format!("[limits.a]\nrule = \"1/s\"\nmax_keys = {}", "9".repeat(1_000_000)),
        "\n".repeat(1_000_000) + "]",
        "= \n".repeat(300_000),
    ];
    let before = peak_bytes();
    for bomb in bombs {
        let start = processor_time();
        let shown = wrong(&bomb);
        let took = processor_time().saturating_sub(start);
        assert!(took < Duration::from_secs(1), "{took:?}: {shown:.200}");
        assert!(shown.starts_with("t.toml:"), "it names the line: {shown:.200}");
        assert!(shown.len() < 100_000, "the errors are too long");
    }
    let grown = peak_bytes() - before;
    assert!(grown <= 256 << 20, "{grown} bytes");
    assert_eq!(read(&(0..10_000).map(limit).collect::<String>()).limits.len(), 10_000);
}

/// T57.
#[test]
fn a_file_of_100_mb_is_refused_without_being_read() {
    let path = std::env::temp_dir().join(format!("tidegate-huge-{}.toml", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    // The file is sparse and takes no disk space.
    file.set_len(100 << 20).unwrap();
    let (before, start) = (peak_bytes(), processor_time());
    let error = load(&path).expect_err("it is too large").to_string();
    let (took, grown) = (processor_time().saturating_sub(start), peak_bytes() - before);
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("is larger than 1048576 bytes"), "{error}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    // Another test of this process reads large files at the same time.
    assert!(grown <= 256 << 20, "{grown} bytes");
}

#[test]
fn a_store_needs_only_its_url() {
    let store = read("[store]\nurl = \"redis://127.0.0.1\"\n").store.expect("it has one");
    assert_eq!(store.url.as_str(), "redis://127.0.0.1");
    assert_eq!(store.deadline, Duration::from_millis(20));
    assert_eq!((store.nodes, store.lease, &*store.prefix), (1, false, "tg:"));
    let text = r#"
        [store]
        url = "rediss+sentinel://limiter:s3cret@10.0.0.1,10.0.0.2/main"
        deadline = "5ms"
        connections = 4
        prefix = "prod:"
        nodes = 12
        lease = true
        [limits.a]
        rule = "1/s"
        on_error = "deny"
        deadline = "2ms"
    "#;
    let config = read(text);
    let store = config.store.expect("it has one");
    assert_eq!((store.connections, store.nodes, store.lease), (4, 12, true));
    assert_eq!(config.limits[0].on_error, OnError::Deny);
    assert_eq!(config.limits[0].deadline, Some(Duration::from_millis(2)));
    assert!(read("[limits.a]\nrule = \"1/s\"\non_error = \"allow\"").store.is_none());
}

#[test]
fn errors_of_a_store_never_show_its_password() {
    assert_eq!(
        wrong("[store]\nurl = \"127.0.0.1\"\n"),
        "t.toml:2:7: `url` is not the address of a store: it has no scheme\n  | url = \"127.0.0.1\"\n  |       \
         ^^^^^^^^^^^\n  = write, for example, \"redis://127.0.0.1:6379\""
    );
    let error = wrong("[store]\nurl = \"redis+ring://me:s3cret@h\"\n");
    assert!(
        error.starts_with("t.toml:2:7: `url` is not the address") && !error.contains("s3cret"),
        "{error}"
    );
    let error = wrong("[store]\nurl = \"redis://me:s3cret@h\n");
    assert!(error.starts_with("t.toml:2:") && !error.contains("s3cret"), "{error}");
    for end in ["\"", ""] {
        let error = wrong(&format!("[store]\nurl = \"redis+ring://h?sentinel=me:s3cret{end}\n"));
        assert!(error.starts_with("t.toml:2:") && !error.contains("s3cret"), "{error}");
    }
    let error = wrong("[store]\nurl = \"redis://h\"\nnode = 3\n");
    assert!(
        error.contains("t.toml:3:1: unknown key `node` in store")
            && error.contains("did you mean `nodes`?"),
        "{error}"
    );
    assert!(wrong("[store]\nnodes = 3\n").contains("`url` is missing"));
    assert!(wrong("[store]\nurl = \"redis://h\"\ndeadline = \"0s\"\n").contains("from 1ms to 10s"));
    assert!(
        wrong("[store]\nurl = \"redis://h\"\nprefix = \"{a}\"\n").contains("not a valid prefix")
    );
    assert!(wrong_limit("rule = \"1/s\"\non_error = \"alow\"").contains("did you mean \"allow\"?"));
}

#[test]
fn a_rule_that_redis_cannot_count_is_refused_with_a_store() {
    let limit = "[limits.a]\nrule = \"1/week burst 9007199254740992\"\n";
    read(limit);
    let error = wrong(&format!("[store]\nurl = \"redis://h\"\n{limit}"));
    assert!(error.starts_with("t.toml:4:8: this rule cannot be kept in the store"), "{error}");
}
