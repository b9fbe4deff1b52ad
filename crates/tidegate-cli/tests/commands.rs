//! The output and exit code of each command.

use std::path::PathBuf;
use std::process::Command;
use tidegate_testbed::FakeRedis;

/// Standard output, standard error and the exit code.
type Run = (String, String, i32);

fn tidegate(args: &[&str]) -> Run {
    tidegate_in(files(), args)
}

fn tidegate_in(directory: PathBuf, args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(directory)
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code().expect("the program exits"))
}

fn files() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

/// Returns the expected output from this file.
fn expected(name: &str) -> String {
    std::fs::read_to_string(files().join(name)).expect("the file exists")
}

#[test]
fn check_explains_each_limit() {
    let (out, err, code) = tidegate(&["check", "good.toml"]);
    assert_eq!((err.as_str(), code), ("", 0));
    assert_eq!(out, expected("good.txt"));
    let (out, _, code) = tidegate(&["check", "good.toml", "--format", "short"]);
    assert_eq!(code, 0);
    let first = out.lines().next().unwrap_or_default();
    assert_eq!(
        first,
        "login: 5/15min sliding-log: admits 5 at once, and never more than 5 in any 15min"
    );
    let (out, _, _) = tidegate(&["check", "good.toml", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    assert_eq!(json["limits"][0]["limit"], "login");
    assert_eq!(json["limits"][0]["key"], serde_json::json!(["ip", "header:x-user"]));
}

#[test]
fn check_notes_that_a_server_does_not_wait_for_a_permit() {
    let (out, err, code) = tidegate(&["check", "permits.toml", "--format", "short"]);
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.contains("; waits up to 500ms for a turn; the server does not wait: "), "{out}");
}

/// A proxy would read the status as permission. Proxies do not acquire permits.
#[test]
fn check_notes_fallbacks_that_a_proxy_would_take_for_permission() {
    let (out, err, code) = tidegate(&["check", "fallback.toml", "--format", "short"]);
    assert_eq!((err.as_str(), code), ("", 0));
    let lines: Vec<&str> = out.lines().filter(|line| line.contains(": note: ")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].starts_with("shop: note: `fallback` has the status 200. "), "{out}");
    assert!(lines[1].starts_with("moved: note: `fallback` has the status 307. "), "{out}");
    let (out, _, _) = tidegate(&["check", "fallback.toml"]);
    assert_eq!(out.matches("\n  note  `fallback` has the status ").count(), 2, "{out}");
    let (out, _, _) = tidegate(&["check", "fallback.toml", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    let notes = |index: usize| json["limits"][index]["notes"].as_array().map(Vec::len);
    assert_eq!([0, 1, 2, 3, 4].map(notes), [Some(1), Some(1), Some(0), Some(0), Some(0)]);
}

#[test]
fn check_shows_errors_and_exits_with_1() {
    let (out, err, code) = tidegate(&["check", "bad.toml"]);
    assert_eq!((out.as_str(), code), ("", 1));
    assert_eq!(err, expected("bad.txt"));
    let (_, err, code) = tidegate(&["check", "bad.toml", "--format", "short"]);
    assert_eq!(code, 1);
    assert_eq!(err.lines().count(), 3, "{err}");
    let (out, _, code) = tidegate(&["check", "bad.toml", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    assert_eq!((code, &json["errors"][0]["line"]), (1, &serde_json::json!(3)));
}

/// A temporary directory, deleted when it is dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the directory can be created");
        Self(directory)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("the file can be written");
    }

    fn run(&self, args: &[&str]) -> Run {
        tidegate_in(self.0.clone(), args)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a self-signed certificate and its key.
fn certificate() -> (String, String) {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("the system has randomness");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Files that `serve` refuses, and a part of the error.
const REFUSED: [(&str, &str); 6] = [
    (
        "[server.tls]\ncert = \"cert.pem\"\nkey = \"other.pem\"\n",
        "is not the key of the certificate",
    ),
    ("[server.tls]\ncert = \"garbage.pem\"\nkey = \"key.pem\"\n", "garbage.pem has no certificate"),
    (
        "[server.admin_tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\nclient_ca = \"garbage.pem\"\n",
        "garbage.pem has no authority",
    ),
    ("[server]\nhttp = \"0.0.0.0:0\"\n", "without a token"),
    (
        "[server]\nhttp = \"0.0.0.0:7000\"\ngrpc = \"127.0.0.1:7000\"\ninsecure = true\n",
        "same address",
    ),
    (
        "[server]\nresp = \"off\"\nhttp = \"off\"\ngrpc = \"off\"\nadmin = \"off\"\n",
        "every listener is off",
    ),
];

#[test]
fn check_reports_the_errors_that_serve_reports_before_it_binds() {
    let files = Files::new("refused");
    let ((cert, key), (_, other)) = (certificate(), certificate());
    for (name, text) in
        [("cert.pem", &*cert), ("key.pem", &key), ("other.pem", &other), ("garbage.pem", "x")]
    {
        files.write(name, text);
    }
    for (text, why) in REFUSED {
        files.write("t.toml", text);
        let (out, checked, code) = files.run(&["check", "t.toml"]);
        assert_eq!((out.as_str(), code), ("", 1), "{text}: {checked}");
        assert!(checked.contains(why), "{text}: {checked}");
        let (_, served, code) = files.run(&["serve", "--config", "t.toml"]);
        assert_eq!((served, code), (format!("tidegate: {checked}"), 2), "{text}");
    }
    files.write("t.toml", "[server]\nhttp = \"0.0.0.0:0\"\n");
    let (_, err, code) = files.run(&["check", "t.toml", "--insecure"]);
    assert_eq!((err.as_str(), code), ("", 0), "`--insecure` has the same meaning as for `serve`");
    let (_, err, code) =
        files.run(&["check", "t.toml", "--http", "127.0.0.1:0", "--grpc", "0.0.0.0:0"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("gRPC would listen on 0.0.0.0:0"), "{err}");
}

#[test]
fn check_warns_of_world_readable_secrets_and_expiring_certificates() {
    let files = Files::new("warned");
    let names = vec!["localhost".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).expect("the name is valid");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().expect("the system has randomness");
    files.write("cert.pem", &params.self_signed(&key).expect("the key can sign").pem());
    files.write("key.pem", &key.serialize_pem());
    files.write("tokens", "# of the proxy\nsecret\n");
    let text = "[server]\nauth.tokens_file = \"tokens\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    files.write("t.toml", text);
    let mode = |mode: &str| {
        let chmod =
            Command::new("chmod").args([mode, "tokens", "key.pem"]).current_dir(&files.0).status();
        assert!(chmod.expect("coreutils").success());
    };
    mode("644");
    let (out, err, code) = files.run(&["check", "t.toml"]);
    assert_eq!((out.as_str(), code), ("valid: no limits\n", 0));
    for why in
        ["every user of this machine can read tokens", "can read key.pem", "[server.tls] expired "]
    {
        assert!(err.contains(why), "{err}");
    }
    assert!(
        err.lines().filter(|line| line.starts_with("warning: ")).count() == 3
            && !err.contains("secret"),
        "{err}"
    );
    let (out, _, _) = files.run(&["check", "t.toml", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(3), "{json}");
    mode("640");
    let (_, err, _) = files.run(&["check", "t.toml"]);
    assert!(!err.contains("can read") && err.contains("expired"), "{err}");
}

#[test]
fn every_command_reports_an_unreadable_file_with_the_same_message() {
    let files = Files::new("unreadable");
    std::fs::create_dir_all(files.0.join("directory")).expect("the directory can be created");
    for (name, why) in [("none.toml", "No such file or directory"), ("directory", "Is a directory")]
    {
        let error = |args: &[&str]| {
            let (out, err, code) = files.run(args);
            assert_eq!((out.as_str(), code), ("", 2), "{args:?}: {err}");
            err
        };
        let checked = error(&["check", name]);
        assert!(
            checked.starts_with(&format!("tidegate: {name}: cannot be read: {why}")),
            "{checked}"
        );
        assert_eq!(error(&["serve", "--config", name]), checked);
        assert_eq!(error(&["explain", "--config", name, "--request", "GET /"]), checked);
        assert_eq!(error(&["import", "envoy", name]), checked);
    }
}

#[test]
fn an_invalid_address_is_answered_with_a_valid_example() {
    for (flag, text, meant) in [
        ("--http", "8080", "127.0.0.1:8080"),
        ("--http", "x", "127.0.0.1:8080"),
        ("--grpc", "x", "127.0.0.1:8081"),
        ("--admin", "localhost:9091", "127.0.0.1:9091"),
        ("--resp", "*:6380", "0.0.0.0:6380"),
    ] {
        let (_, err, code) = tidegate(&["serve", flag, text]);
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains(&format!("write \"{meant}\"")) || err.contains(&format!("\"{meant}\"")),
            "{err}"
        );
    }
}

#[test]
fn check_with_connect_examines_the_store() {
    let redis = tidegate_testbed::RedisServer::start();
    let file = std::env::temp_dir().join(format!("tidegate-store-{}.toml", std::process::id()));
    std::fs::write(&file, format!("[store]\nurl = \"{}\"\n", redis.url()))
        .expect("the file is written");
    let path = file.display().to_string();
    let (out, _, code) = tidegate(&["check", &path, "--connect"]);
    let answers = format!("valid: no limits\nstore: {} answers\n", redis.address());
    assert_eq!((out, code), (answers, 0));
    for setting in ["maxmemory", "maxmemory-policy"] {
        let value = if setting == "maxmemory" { "100mb" } else { "allkeys-lru" };
        redis.command(&["CONFIG", "SET", setting, value]);
    }
    let (out, _, code) = tidegate(&["check", &path, "--connect"]);
    assert!(out.lines().last().is_some_and(|line| line.contains("allkeys-lru")), "{out}");
    assert_eq!(code, 1);
    redis.kill();
    let (out, _, code) = tidegate(&["check", &path, "--connect", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    assert_eq!((&json["store"]["servers"][0]["is_up"], code), (&serde_json::json!(false), 1));
    assert_eq!(tidegate(&["check", &path]).2, 0, "without --connect the store is not contacted");
    std::fs::remove_file(&file).expect("the file can be removed");
    let (out, _, code) = tidegate(&["check", "good.toml", "--connect"]);
    assert_eq!((out.lines().last(), code), (Some("store: memory; no connection is needed"), 0));
}

#[test]
fn check_warns_of_a_setting_without_effect() {
    let files = Files::new("without-effect");
    files.write("t.toml", "[server]\nstay_awake = \"50us\"\n");
    let (out, err, code) = files.run(&["check", "t.toml"]);
    assert_eq!((out.as_str(), code), ("valid: no limits\n", 0));
    assert!(
        err.starts_with("warning: t.toml:2:14: `stay_awake` has no effect any more\n"),
        "{err}"
    );
}

#[test]
fn control_characters_of_the_store_are_escaped_by_check() {
    let refuses = FakeRedis::start(|_| b"-ERR \x1b[2J \xc2\x9b31m\r\n");
    let evicts = FakeRedis::start(|command| match command {
        "INFO" => b"$26\r\nmaxmemory_policy:\x1b[2J\xc2\x9b31m\r\n",
        _ => b"-ERR \x1b[2J \xc2\x9b31m\r\n",
    });
    let files = Files::new("escapes");
    for (fake, shown) in [(&refuses, r"\u001b[2J \u009b31m"), (&evicts, r"\u001b[2J\u009b31m)")] {
        files.write("t.toml", &format!("[store]\nurl = \"{}\"\n", fake.url()));
        for format in ["text", "json"] {
            let (out, err, code) = files.run(&["check", "t.toml", "--connect", "--format", format]);
            assert_eq!((err.as_str(), code), ("", 1), "{out}");
            assert!(out.contains(shown), "{out:?}");
            assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
        }
    }
}

#[test]
fn control_characters_of_a_file_are_escaped_in_errors() {
    let files = Files::new("escaped-errors");
    files.write("t.toml", "[limits.\"\u{202e}\"]\nrule = \"1/s\"\n\"\\u001b[2J\" = 1\n");
    let (_, err, code) = files.run(&["check", "t.toml"]);
    assert_eq!(code, 1);
    assert!(err.contains(r"\u001b[2J"), "{err:?}");
    assert!(!err.contains(|c: char| c.is_control() && c != '\n'), "{err:?}");
    let (_, err, code) = files.run(&["check", "\u{1b}[2J.toml"]);
    assert_eq!(code, 2);
    assert!(err.starts_with(r"tidegate: \u001b[2J.toml: cannot be read"), "{err:?}");
}

#[test]
fn a_command_that_cannot_run_exits_with_2() {
    let (_, err, code) = tidegate(&["check", "nowhere.toml"]);
    assert_eq!(code, 2);
    assert!(err.starts_with("tidegate: nowhere.toml: cannot be read: "), "{err}");
    assert_eq!(tidegate(&["chekc"]).2, 2);
    assert_eq!(tidegate(&["import", "envoy", "nowhere.yaml"]).2, 2);
    let (_, err, code) = tidegate(&["explain", "--config", "good.toml", "--request", "login"]);
    assert_eq!(code, 2);
    assert_eq!(err, "tidegate: `login` is not a request: write 'GET login'\n");
}

#[test]
fn explain_suggests_a_valid_request() {
    let say = |request| {
        let (_, err, code) = tidegate(&["explain", "--config", "good.toml", "--request", request]);
        assert_eq!(code, 2, "{request}");
        err
    };
    assert_eq!(say("GET"), "tidegate: `GET` has no path: write 'GET /'\n");
    assert_eq!(say("POST "), "tidegate: `POST` has no path: write 'POST /'\n");
    for empty in ["", " "] {
        assert_eq!(say(empty), "tidegate: the request is empty: write 'GET /'\n");
    }
}

#[test]
fn no_error_repeats_a_password() {
    let ask = ["explain", "--config", "good.toml", "--request", "GET /", "--header"];
    for commands in [
        [&ask[..], &["Authorization Bearer PW"]].concat(),
        [&ask[..], &["PW"]].concat(),
        vec!["bench", "redis://u:PW@127.0.0.1:1"],
        vec!["bench", "redis://u:PW@127.0.0.1"],
    ] {
        let (out, err, code) = tidegate(&commands);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.starts_with("tidegate: ") && !err.contains("PW"), "{err}");
    }
}

#[test]
fn serve_with_a_bare_file_suggests_the_flag() {
    let (out, err, code) = tidegate(&["serve", "good.toml"]);
    let expected = "tidegate: unexpected argument `good.toml`: name a configuration with --config, as in `tidegate serve --config good.toml`\n";
    assert_eq!((out.as_str(), err.as_str(), code), ("", expected, 2));
}

/// Returns the page's code blocks in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin)
        .skip(1)
        .map(|after| after.split_once("```").expect("the block ends").0)
        .collect()
}

/// Splits a command at spaces outside single quotes.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
    }
    words
}

#[test]
fn explain_prints_the_output_in_the_guide() {
    let page = include_str!("../../../docs/guide/explain.md");
    let directory = std::env::temp_dir().join(format!("tidegate-explain-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory can be created");
    std::fs::write(directory.join("tidegate.toml"), blocks(page, "toml")[0])
        .expect("the file is written");
    let commands = blocks(page, "console");
    assert_eq!(commands.len(), 2);
    for block in commands {
        let (command, shown) = block.split_once('\n').expect("the block has output");
        let words = words(command.strip_prefix("$ tidegate ").expect("the command is tidegate"));
        let (out, err, code) = tidegate_in(directory.clone(), &words);
        assert_eq!((err.as_str(), code), ("", 0));
        assert_eq!(out, shown);
    }
    std::fs::remove_dir_all(directory).expect("the directory can be removed");
}

#[test]
fn explain_names_the_limit_that_decides() {
    let ask = ["explain", "--config", "good.toml", "--ip", "2001:db8::1", "--request"];
    let (out, _, _) = tidegate(&[&ask[..], &["GET /", "--format", "short"]].concat());
    assert_eq!(out, "allow everything\n");
    let (out, _, _) = tidegate(&[&ask[..], &["GET /", "--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&out).expect("the output is JSON");
    assert_eq!(json["decided_by"], "everything");
    let forwarded = [&ask[..], &["GET /", "--header", "X-Forwarded-For: 192.0.2.7"]].concat();
    let (out, _, _) = tidegate(&forwarded);
    let hint = "hint: `x-forwarded-for` is ignored because 2001:db8::1 is not a trusted proxy";
    assert!(out.lines().any(|line| line.starts_with(hint)), "{out}");
    let (_, err, code) = tidegate(&["explain", "--config", "bad.toml", "--request", "GET /"]);
    assert_eq!((err, code), (expected("bad.txt"), 1));
}

#[test]
fn explain_reads_a_repeated_header_as_the_server_does() {
    let directory = std::env::temp_dir().join(format!("tidegate-twice-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory can be created");
    let limit = "[limits.user]\nrule = \"5/min\"\nkey = \"header:x-user\"\n";
    std::fs::write(directory.join("t.toml"), limit).expect("the file is written");
    let ask = ["explain", "--config", "t.toml", "--request", "GET /", "--header", "x-user: ann"];
    let (once, ..) = tidegate_in(directory.clone(), &ask);
    let twice = [&ask[..], &["--header", "X-User: bob"]].concat();
    let (twice, ..) = tidegate_in(directory.clone(), &twice);
    std::fs::remove_dir_all(directory).expect("the directory can be removed");
    assert!(once.contains("key \"ann\""), "{once}");
    assert!(twice.contains("key \"\""), "a repeated header has no key: {twice}");
}

#[test]
fn import_envoy_translates_and_lists_lines_it_cannot_translate() {
    let (out, err, code) = tidegate(&["import", "envoy", "envoy.yaml"]);
    assert_eq!(out, expected("envoy.toml"));
    assert_eq!(err, expected("envoy.txt"));
    assert_eq!(code, 1);
    let (_, err, code) = tidegate(&["check", "envoy.toml"]);
    assert_eq!((err.as_str(), code), ("", 0), "the output is a valid configuration");
}

#[test]
fn import_of_an_alias_bomb_is_an_error() {
    let level = |n: u32| format!("a{n}: &a{n} [*a{below}, *a{below}, *a{below}]", below = n - 1);
    let levels: Vec<String> = (1..40).map(level).collect();
    let bomb = format!("a0: &a0 [x, x]\n{}\n", levels.join("\n"));
    let file = std::env::temp_dir().join(format!("tidegate-bomb-{}.yaml", std::process::id()));
    std::fs::write(&file, bomb).expect("the file can be written");
    let (_, err, code) = tidegate(&["import", "envoy", &file.display().to_string()]);
    std::fs::remove_file(&file).expect("the file can be removed");
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("line 11 column 22"),
        "the error names the line where the expansion is too large: {err}"
    );
}

#[test]
fn import_of_an_endless_file_is_an_error() {
    let (_, err, code) = tidegate(&["import", "envoy", "/dev/zero"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("is larger than"), "{err}");
}

#[test]
fn completions_and_the_manual_list_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (out, _, code) = tidegate(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("completions") && out.contains("explain"), "{shell}");
    }
    let (out, _, code) = tidegate(&["man"]);
    assert_eq!(code, 0);
    assert!(out.contains(".TH tidegate") && out.contains("import"), "{out}");
    assert!(tidegate(&["man", "check"]).0.contains("format"));
    assert_eq!(tidegate(&["man", "nothing"]).2, 2);
}
