//! The relay as it is shipped, in front of a real Kubernetes (`cargo xtask cluster`), with the real runner in its pods.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod attached;
mod bodies;
mod cancels;
mod client;
mod cluster;
mod doors;
mod escalations;
mod hangs;
mod heavy;
mod installed;
mod jobs;
mod killed;
mod listed;
mod memory;
mod merges;
mod objects;
mod plane;
mod reasons;
mod released;
mod requests;
mod rights;
mod turns;
mod twins;
mod versions;
mod world;
