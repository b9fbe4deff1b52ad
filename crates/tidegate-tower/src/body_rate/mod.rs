//! Layers that let bodies flow only so fast: by bytes, with back-pressure.

mod body;
mod layer;

pub use body::ThrottledBody;
pub use layer::{BodyRateFuture, DownloadRate, DownloadRateLayer, UploadRate, UploadRateLayer};
