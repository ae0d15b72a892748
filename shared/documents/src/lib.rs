//! Documents: loading with positions, checking, compiling to a frozen plan, rendering.
//!
//! Pure: text in, values out. It reads files only through the [`load::FileSource`] that it is given, and knows neither
//! table nor network.
mod canonical;
pub mod compile;
pub mod diagnostic;
pub mod load;
pub mod model;
pub mod plan;
pub mod render;
pub mod schema;
mod source;
pub mod template;

pub use ebb_cel as expr;

#[cfg(test)]
mod tests;
