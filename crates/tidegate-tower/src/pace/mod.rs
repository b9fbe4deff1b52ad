//! Layers that let bodies flow only so fast: by bytes, with back-pressure.

mod body;
mod layer;

pub use body::PacedBody;
pub use layer::{DownloadRate, DownloadRateLayer, PaceFuture, UploadRate, UploadRateLayer};
