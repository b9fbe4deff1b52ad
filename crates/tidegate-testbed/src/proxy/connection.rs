//! One connection from a client to the server.

use std::future::pending;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;

use super::fault::Fault;
use super::replies;
use super::shared_state::{End, PIECE_BYTES_MAX, SharedState};

pub(super) async fn run(state: SharedState, mut client: TcpStream, server: SocketAddr) {
    let end = select! {
        end = pass(&state, &mut client, server) => end,
        () = state.becomes(Fault::Refuse) => End::Reset,
    };
    if end == End::Reset {
        // Fails only if the client has already closed the connection.
        let _ = client.set_zero_linger();
    }
}

async fn pass(state: &SharedState, client: &mut TcpStream, server: SocketAddr) -> End {
    // A black hole must not reveal whether the server is up.
    if state.fault() == Fault::BlackHole {
        return swallow(client).await;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return End::Reset };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return End::Reset;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    select! {
        end = requests(state, from_client, to_server) => end,
        end = replies::pass(state, from_server, to_client) => end,
    }
}

async fn swallow(client: &mut TcpStream) -> End {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    while !matches!(client.read(&mut piece).await, Ok(0) | Err(_)) {}
    End::Close
}

async fn requests(state: &SharedState, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    loop {
        let bytes = match from.read(&mut piece).await {
            Ok(0) if state.is_lost() => return End::Close,
            Ok(0) => {
                // The client may still wait for replies; the server closes the connection after them.
                let _ = to.shutdown().await;
                return pending().await;
            }
            Ok(bytes) => bytes,
            Err(_) => return End::Reset,
        };
        if state.is_lost() {
            continue;
        }
        if to.write_all(&piece[..bytes]).await.is_err() {
            return End::Reset;
        }
        state.counts.request_bytes.add(bytes);
    }
}
