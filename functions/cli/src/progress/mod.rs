//! Progress of targets, from the API to standard error.
//!
//! [`follow`](follow::follow) polls the server. [`tree`] and [`lines`] turn responses into text, without a clock.
//! [`screen`] prints the text.

pub(crate) mod follow;
pub(crate) mod labels;
pub(crate) mod lines;
pub(crate) mod screen;
pub(crate) mod tree;

#[cfg(test)]
pub(crate) mod fixtures;
