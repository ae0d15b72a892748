//! Overlays and manifests, as an author writes them.

mod base;
mod manifests;
mod merging;
