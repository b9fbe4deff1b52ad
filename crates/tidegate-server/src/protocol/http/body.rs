//! Collects the body of a request up to a maximum length.

use super::problem::Problem;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body;
use std::time::Duration;

/// Maximum length of a body.
pub(crate) const BODY_BYTES_MAX: usize = 65_536;

/// Returns the whole body, if it arrives in time.
pub(crate) async fn collect<B>(body: B, patience: Duration) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    match tokio::time::timeout(patience, all_of(body)).await {
        Ok(all) => all,
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

async fn all_of<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, Problem> {
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    // A short body usually arrives in one piece, which is not copied.
    if body.is_end_stream() {
        return bounded(first);
    }
    let mut all = bounded(first)?.to_vec();
    while let Some(piece) = next(&mut body).await? {
        if all.len() + piece.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

fn bounded(bytes: Bytes) -> Result<Bytes, Problem> {
    if bytes.len() > BODY_BYTES_MAX { Err(too_long()) } else { Ok(bytes) }
}

/// Returns the next piece of data. Trailers are ignored.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, Problem> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Problem::bad("the body is incomplete")),
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

fn too_long() -> Problem {
    let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::body::Frame;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    const PATIENCE: Duration = Duration::from_secs(1);

    /// A body of these pieces, without a known length.
    struct Pieces(Vec<usize>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let piece = |length| Ok(Frame::data(Bytes::from(vec![b'x'; length])));
            let next = (!self.0.is_empty()).then(|| self.0.remove(0));
            Poll::Ready(next.map(piece))
        }
    }

    async fn collected(pieces: &[usize]) -> Result<usize, StatusCode> {
        let body = Pieces(pieces.to_vec());
        collect(body, PATIENCE).await.map(|body| body.len()).map_err(|problem| problem.status)
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_maximum_and_not_beyond() {
        let whole = |length| collect(Full::new(Bytes::from(vec![b'x'; length])), PATIENCE);
        assert_eq!(whole(BODY_BYTES_MAX).await.unwrap().len(), BODY_BYTES_MAX);
        let problem = whole(BODY_BYTES_MAX + 1).await.unwrap_err();
        assert_eq!(problem.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(whole(0).await.unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_has_the_same_maximum() {
        assert_eq!(collected(&[1, 2, 3]).await, Ok(6));
        assert_eq!(collected(&[BODY_BYTES_MAX - 1, 1]).await, Ok(BODY_BYTES_MAX));
        let too_large = Err(StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(collected(&[BODY_BYTES_MAX, 1]).await, too_large);
        assert_eq!(collected(&[BODY_BYTES_MAX + 1]).await, too_large);
    }
}
