//! scratch
fn main() -> anyhow::Result<()> {
    let mut config = tidegate_server::config::Config::default();
    let resp = std::env::args().nth(1).unwrap_or("127.0.0.1:6380".into());
    config.server.resp = Some(resp.parse()?);
    config.server.http = None;
    config.server.grpc = None;
    config.server.admin = None;
    let server = tidegate_server::server::Server::new(
        config,
        None,
        tidegate_server::clock::ServerClock::system(),
        Default::default(),
    );
    let running = tidegate_server::listen::start(server)?;
    std::thread::park();
    running.stop()
}
