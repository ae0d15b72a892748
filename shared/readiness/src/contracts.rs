//! Contracts by family. Each row names the source of its rule.

mod argo;
mod cluster_api;
mod core;
mod crossplane;
mod delivery;
mod extension;
mod job;
mod kro;
mod pod;
mod static_kinds;
pub(crate) mod unknown;
mod workload;

use crate::table::ContractRow;

/// All rows. The first match counts.
pub(crate) const FAMILIES: &[&[ContractRow]] = &[
    static_kinds::ROWS,
    core::ROWS,
    pod::ROWS,
    job::ROWS,
    workload::ROWS,
    extension::ROWS,
    argo::ROWS,
    cluster_api::ROWS,
    crossplane::ROWS,
    kro::ROWS,
    delivery::ROWS,
];
