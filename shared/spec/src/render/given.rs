//! given
