//! From documents to plans, and from plans to what is sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod fixtures;
mod plans;
mod properties;
mod rejections;
mod rendering;
