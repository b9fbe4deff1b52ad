//! Encodings of a key's state: packed words for memory, plain words for snapshots, and numbers for Lua.
//!
//! Only the building blocks are here. Each algorithm encodes its own state with them, and
//! [`Limit`](crate::Limit) offers the encodings to stores.

pub(crate) mod lua;
pub(crate) mod packed;
pub(crate) mod snapshot;
