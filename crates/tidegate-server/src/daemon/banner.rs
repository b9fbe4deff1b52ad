//! What is said at the start: where it listens, and three things to try.

use crate::listen::Running;
use std::io::{self, Write};
use std::net::SocketAddr;

pub(super) fn print(running: &Running, out: &mut impl Write) -> io::Result<()> {
    let addresses = &running.addresses;
    writeln!(out, "tidegate {} listens on", env!("CARGO_PKG_VERSION"))?;
    let shown = |addr: Option<SocketAddr>| addr.map_or("off".to_owned(), |addr| addr.to_string());
    for (name, addr) in [
        ("RESP ", addresses.resp),
        ("HTTP ", addresses.http),
        ("gRPC ", addresses.grpc),
        ("admin", addresses.admin),
    ] {
        writeln!(out, "  {name}  {}", shown(addr))?;
    }
    writeln!(out, "try")?;
    if let Some(resp) = addresses.resp {
        writeln!(out, "  redis-cli -p {} CL.THROTTLE user:1 15 30 60", resp.port())?;
    }
    if let Some(http) = addresses.http {
        writeln!(
            out,
            "  curl -s {http}/v1/check -H 'content-type: application/json' \
             -d '{{\"rule\": \"5/min\", \"key\": \"user:1\"}}'"
        )?;
    }
    if let Some(admin) = addresses.admin {
        let has_tls = running.server.config().server.admin_tls.is_some();
        let scheme = if has_tls { "https" } else { "http" };
        writeln!(out, "  open {scheme}://{admin}/ in a browser")?;
    }
    out.flush()
}
