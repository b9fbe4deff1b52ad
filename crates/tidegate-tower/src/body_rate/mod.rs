//! Layers that limit the bytes per second of bodies. A sender that is too fast has to wait.

mod body;
mod layer;

pub use body::ThrottledBody;
pub use layer::{BodyRateFuture, DownloadRate, DownloadRateLayer, UploadRate, UploadRateLayer};
