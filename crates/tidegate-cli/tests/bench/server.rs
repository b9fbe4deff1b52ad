//! Servers to measure: the real one as a process, and fakes. Also `tidegate bench` as a process.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const CONFIG: &str = "
[limits.five]
rule = \"5/h fixed\"
domain = \"edge\"
descriptor = [\"user\"]
";

/// A `tidegate serve` process with a limit named `five`, killed on drop.
pub(crate) struct Server {
    child: Child,
    /// The read end of its standard output, kept open because the server ends if it cannot print its addresses.
    _out: BufReader<ChildStdout>,
    config: PathBuf,
    pub(crate) resp: String,
    pub(crate) http: String,
    pub(crate) grpc: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(CONFIG)
    }

    /// Starts a server with TLS on every listener, and returns the certificate for clients to trust.
    pub(crate) fn with_tls() -> (Self, PathBuf) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("the system has randomness");
        let file = |name: &str, text: &str| {
            let name = format!("tidegate-bench-{}-{name}.pem", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).expect("the file can be written");
            path
        };
        let cert = file("cert", &made.cert.pem());
        let key = file("key", &made.signing_key.serialize_pem());
        let server = Self::with(&format!(
            "{CONFIG}[server.tls]\ncert = \"{0}\"\nkey = \"{1}\"\nclient_ca = \"{0}\"\n",
            cert.display(),
            key.display(),
        ));
        // The certificate is self-signed, so clients can use it as the authority.
        (server, cert)
    }

    pub(crate) fn with(config: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-bench-{}-{number}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, config).expect("the file can be written");
        let anywhere = ["--resp", "--http", "--grpc"].map(|wire| [wire, "127.0.0.1:0"]).concat();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--admin", "off", "--config"])
            .arg(&path)
            .args(anywhere)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut out = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let lines: Vec<String> = out.by_ref().lines().map_while(Result::ok).take(4).collect();
        let address = |name: &str| {
            let line = lines.iter().find(|line| line.trim_start().starts_with(name));
            let address = line.and_then(|line| line.split_whitespace().nth(1));
            address.unwrap_or_else(|| panic!("no {name} in {lines:?}")).to_owned()
        };
        let (resp, http, grpc) = (address("RESP"), address("HTTP"), address("gRPC"));
        Self { child, _out: out, config: path, resp, http, grpc }
    }

    /// Resets the ten keys.
    pub(crate) fn reset_keys(&self) {
        let mut peer = TcpStream::connect(&self.resp).expect("the server accepts connections");
        for key in 0..10 {
            write!(peer, "TIDE.RESET five key:{key:012}\r\n")
                .expect("the server reads the command");
            // The key of a descriptor differs from the keys of the other protocols, so an error here is harmless.
            let mut line = String::new();
            BufReader::new((&peer).take(64)).read_line(&mut line).expect("the server answers");
            assert_eq!(line, "+OK\r\n");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

/// Runs `tidegate bench` and returns its standard output, standard error and exit code.
pub(crate) fn bench(args: &[&str]) -> (String, String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("bench")
        .args(args)
        .env_remove("TIDEGATE_TOKEN")
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code().expect("the program exits"))
}

/// Runs `tidegate bench` and returns its result as JSON, and its exit code.
pub(crate) fn measure(args: &[&str]) -> (Value, i32) {
    let (out, err, code) = bench(&[args, &["--format", "json"]].concat());
    let read = serde_json::from_str(&out);
    (read.unwrap_or_else(|error| panic!("{error}: {out}{err}")), code)
}

/// Starts a server with one thread per connection, which runs `serve`, and returns its address.
pub(crate) fn fake(serve: impl Fn(CommandStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("the listener has an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(CommandStream(BufReader::new(stream))));
        }
    });
    address
}

/// Starts a server that answers all input with these bytes, until the client closes the connection. Returns the address.
pub(crate) fn fake_bytes(reply: &'static [u8]) -> String {
    fake(move |CommandStream(mut reader)| {
        // The client waits for the reply before it sends more.
        while reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            let length = reader.buffer().len();
            reader.consume(length);
            let _ = reader.get_mut().write_all(reply);
        }
    })
}

/// Starts a server that fails every gRPC call with this message. Returns the address.
pub(crate) fn fake_grpc(message: &'static [u8]) -> String {
    let message = http::HeaderValue::from_bytes(message).expect("HTTP permits these bytes");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("the listener has an address").to_string();
    listener.set_nonblocking(true).expect("the listener can be non-blocking");
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime has I/O");
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let response = http::Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "13")
                    .header("grpc-message", &message);
                let response = response.body(()).expect("the response is valid");
                respond.send_response(response, true).expect("the stream is open");
            }
        }
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the runtime starts").block_on(serve);
    });
    address
}

/// A connection whose client sends commands of five words.
pub(crate) struct CommandStream(BufReader<TcpStream>);

impl CommandStream {
    /// Reads a command; returns false if the client has closed the connection.
    pub(crate) fn next(&mut self) -> bool {
        let mut line = String::new();
        let lines = (0..11).map(|_| self.0.read_line(&mut line).unwrap_or(0));
        lines.min().is_some_and(|shortest| shortest > 0)
    }

    pub(crate) fn answer(&mut self, reply: &str) {
        // The client may have closed the connection.
        let _ = self.0.get_mut().write_all(reply.as_bytes());
    }
}

pub(crate) const ALLOWED: &str = "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
