//! Layers that limit requests by load: by what a service, or the machine, can handle.
//!
//! Always   An admitted request is passed to the service; a rejected one gets a response, never an error.
//! Always   A permit is released once: when the response has ended as far as the layer counts it, when the service fails or
//!          panics, or when the request is given up at any point (T13).

mod adaptive;
mod layer;
mod settings;
mod shed;

pub use adaptive::{AdaptiveLayer, LoadSignal};
pub use layer::LoadLayer;
pub use settings::Load;
pub(crate) use settings::LoadSettings;
pub use shed::ShedLayer;
