//! Owners, labels and first causes of targets, and lists that select by them.

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "lifecycle/owners.yaml";

pub(crate) async fn an_instance_keeps_its_owner() {
    request_table::play(&Harness::simple().await, TABLE, "an_instance_keeps_its_owner", &[]).await;
}

pub(crate) async fn lists_are_filtered() {
    request_table::play(&Harness::simple().await, TABLE, "lists_are_filtered", &[]).await;
}
