//! The contracts, by family. Each line says where its rule is from.

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

/// All lines; the first that fits counts.
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
