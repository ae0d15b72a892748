//! From documents to plans, and from plans to what is sent.

mod fixtures;
mod plans;
mod properties;
mod rejections;
mod rendering;
