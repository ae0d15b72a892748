//! Values that are null: outputs and the environment.

use crate::harness::*;
use crate::request_table;

pub(crate) async fn a_variable_that_is_null_is_an_error_unless_it_is_optional() {
    let (table, test) = ("lifecycle/nulls.yaml", "a_variable_that_is_null_is_an_error_unless_it_is_optional");
    request_table::play(&Harness::new().await, table, test, &[]).await;
}
