//! Spans as an OpenTelemetry collector gets them. `cargo xtask verify aws` builds the collector, with Go.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../deployment/collector.rs"]
mod collector;
#[path = "../deployment/functions.rs"]
#[allow(dead_code)]
mod functions;
#[path = "../deployment/outside.rs"]
#[allow(dead_code)]
mod outside;
#[path = "../deployment/record.rs"]
#[allow(dead_code)]
mod record;
#[path = "../deployment/run.rs"]
#[allow(dead_code)]
mod run;
#[path = "../deployment/traces.rs"]
mod traces;
