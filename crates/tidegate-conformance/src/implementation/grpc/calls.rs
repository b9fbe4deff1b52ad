//! Calls of Envoy's rate limit service over one HTTP/2 connection.
//!
//! Rejected tonic's client: the server uses the same library, and the bytes must be encoded independently.

use crate::implementation::{Refusal, failed};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message;
use prost::bytes::Bytes;
use std::net::SocketAddr;
use std::pin::Pin;
use tidegate_server::protocol::grpc::PATH;
use tidegate_server::protocol::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tidegate_testbed::PATIENCE;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// A pending response.
pub(super) type Pending = Pin<Box<dyn Future<Output = Result<RateLimitResponse, CallError>>>>;

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server returned this status.
    Refused { code: String, message: String },
    /// The connection failed.
    Broken(String),
}

/// `INVALID_ARGUMENT`, as a number.
pub(super) const INVALID_ARGUMENT: &str = "3";

/// Length of the prefix of a message: a byte for no compression, and the message's length.
const PREFIX_BYTES: usize = 5;

/// A connection.
pub(super) struct Calls {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

impl Calls {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let (sender, connection) = h2::client::handshake(stream).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok::<_, Refusal>(sender)
        })?;
        Ok(Self { runtime, sender })
    }

    /// Starts a call, which makes progress while [`Self::wait`] runs.
    pub(super) fn call(&self, request: &RateLimitRequest) -> Pending {
        let message = request.encode_to_vec();
        Box::pin(exchange(self.sender.clone(), framed(&message)))
    }

    /// Waits for the response until `gives_up` returns true, which is checked after every `step`.
    pub(super) fn wait(
        &self,
        answer: &mut Pending,
        step: std::time::Duration,
        mut gives_up: impl FnMut() -> bool,
    ) -> Result<Option<Result<RateLimitResponse, CallError>>, Refusal> {
        let heard = async {
            loop {
                if let Ok(answer) = timeout(step, answer.as_mut()).await {
                    return Some(answer);
                }
                if gives_up() {
                    return None;
                }
            }
        };
        let in_time = async { timeout(PATIENCE, heard).await };
        self.runtime.block_on(in_time).map_err(|_| failed("the server does not answer"))
    }
}

async fn exchange(
    sender: SendRequest<Bytes>,
    frame: Bytes,
) -> Result<RateLimitResponse, CallError> {
    let mut sender = sender.ready().await?;
    let request = Request::post(format!("http://localhost{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| CallError::Broken(error.to_string()))?;
    let (response, mut body) = sender.send_request(request, false)?;
    body.send_data(frame, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        bytes.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    // A response without a message has its status in the head.
    let trailers = body.trailers().await?.unwrap_or(head.headers);
    refuse_bad_status(&trailers)?;
    let message = bytes.get(PREFIX_BYTES..).unwrap_or_default();
    RateLimitResponse::decode(message).map_err(|error| CallError::Broken(error.to_string()))
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a message is short");
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

fn refuse_bad_status(trailers: &HeaderMap) -> Result<(), CallError> {
    let field = |name: &str| {
        let value = trailers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        value.unwrap_or_default().into_owned()
    };
    match field("grpc-status") {
        code if code == "0" => Ok(()),
        code => Err(CallError::Refused { code, message: field("grpc-message") }),
    }
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Failed(match error {
            CallError::Refused { code, message } => format!("status {code}: {message}"),
            CallError::Broken(why) => why,
        })
    }
}
