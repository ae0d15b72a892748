//! Overlays and manifests, as an author writes them, and policies of operators.

mod base;
mod manifests;
mod merging;
mod pods;
mod policies;
