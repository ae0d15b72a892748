//! From documents to plans, and from plans to what is sent.

pub(super) mod fixtures;
mod plans;
mod properties;
mod rendering;
