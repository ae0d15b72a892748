//! Decides which resources of an instance may exist, and grades the evidence that they are gone.

pub mod evidence;
pub mod possible_resources;
pub(crate) mod visibility;
