//! Tests that every table must pass: DynamoDB, by the AWS SDK, or the embedded table.
//!
//! A test program runs [`trials`] on a table, and [`service_trials`] too if the table is a service with the DynamoDB API. Each test has its own
//! table and bucket. A proxy between SDK and table refuses requests and drops responses. Every test with a fault
//! asserts that the fault occurred.

use libtest_mimic::Trial;

mod batch_queue;
mod capacity;
mod changed_targets;
mod desired;
mod document;
mod dynamodb_local;
mod expiry;
mod faults;
mod fixture;
mod hints;
mod history_items;
mod list;
mod lost_replies;
mod meter;
mod model;
mod named_tokens;
mod observed;
mod proxy;
mod record;
mod record_model;
mod registered_clusters;
pub mod samples;
mod sizes;
mod slots;
mod strong;
mod target;

pub use dynamodb_local::DynamoDbLocal;
pub use fixture::{TablePlace, TableUnderTest};
pub use meter::{Meter, TableUsage};
pub use observed::{RequestPlace, StoreObserver, TableRequest};

use fixture::StoreFixture;

macro_rules! trials {
    ($table:expr; $($module:ident: $($test:ident),+;)+) => {
        vec![$($({
            let table: TableUnderTest = $table.clone();
            let name = concat!(stringify!($module), "::", stringify!($test));
            Trial::test(format!("{}::{name}", table.name), move || {
                fixture::runtime().block_on(async { Box::pin($module::$test(StoreFixture::new(&table).await)).await });
                Ok(())
            })
        }),+),+]
    };
}

pub fn trials(table: &TableUnderTest) -> Vec<Trial> {
    trials![table;
        document: plans_are_stored_in_the_table_or_the_bucket, a_rejected_instance_leaves_no_plan,
            objects_are_replaced, plugin_versions_are_published_once, a_withdrawn_version_is_unlisted_and_readable;
        desired: a_desired_state_is_due_until_it_has_a_result, named_documents_are_replaced_and_listed,
            undelivered_notifications_are_listed_by_subscription, rejected_events_are_replaced_and_listed;
        named_tokens: a_name_has_one_valid_token, a_session_is_read_until_it_is_deleted;
        changed_targets: changes_are_appended_while_a_reader_watches, concurrent_changes_are_noticed,
            a_look_at_heads_costs_half_a_unit;
        history_items: the_history_is_listed_from_the_newest_entry, a_change_without_a_run_is_written_with_its_entry;
        registered_clusters: a_cluster_is_replaced_by_its_next_version;
        capacity: a_completion_costs_one_to_three_write_units, a_retry_with_an_earlier_wakeup_costs_three_write_units,
            a_failed_condition_is_counted;
        hints: unreadable_index_entries_are_skipped, due_items_of_many_pages_are_found;
        list: due_items_are_found_until_they_change, targets_are_listed_by_kind_and_name,
            gone_targets_have_a_separate_list, stale_entries_are_skipped_by_page, a_page_of_stale_entries_ends,
            a_damaged_target_is_reported_in_the_list, targets_beyond_one_response_are_listed;
        expiry: instances_expire_when_they_are_due, a_damaged_expiry_is_postponed, a_run_is_removed_without_others,
            objects_of_a_run_are_removed;
        batch_queue: batches_are_pending_until_they_have_a_response_or_expire,
            large_batches_and_responses_are_stored_in_the_bucket, a_batch_that_is_delivered_once_is_pending_once,
            a_queued_batch_costs_three_writes, a_poll_reads_a_limited_number_of_batches,
            polls_delete_abandoned_batches, a_scan_is_claimed_once, faults_of_clusters_are_recorded_until_they_end,
            the_last_policy_of_a_cluster_is_kept, nothing_is_left_of_a_forgotten_cluster;
        model: the_table_applies_patches_like_the_engine, a_run_gets_the_digest_of_another_plan;
        record: damaged_evidence_leaves_its_record_readable, concurrent_results_share_the_limit,
            attempts_are_accepted_together, only_the_requested_units_are_read, records_of_several_pages_are_read;
        record_model: the_table_changes_records_like_the_model;
        sizes: a_result_that_is_too_large_is_rejected, a_target_that_is_too_large_is_rejected, the_largest_items_fit,
            keys_that_are_too_long_are_not_found, the_longest_names_of_targets_fit_into_keys;
        slots: slots_end_and_are_given_again;
        target: a_target_is_read_unchanged, a_transition_needs_the_expected_version,
            one_of_several_equal_transitions_is_written, the_end_of_a_target_writes_a_tombstone,
            a_transaction_writes_all_items_or_none, completions_succeed_during_rejected_transactions;
    ]
}

/// Returns the tests of requests to a service. A proxy refuses some of them.
pub fn service_trials(table: &TableUnderTest) -> Vec<Trial> {
    trials![table;
        document: an_object_without_an_instance_is_removed, the_object_of_a_plan_is_removed_after_a_lost_response;
        faults: transient_errors_are_retried, persistent_throttling_is_retryable, invalid_requests_are_broken,
            a_write_is_retried_after_a_transaction_conflict, a_transaction_is_retried_after_a_conflict,
            unprocessed_keys_are_read_again, a_lost_request_is_sent_again;
        hints: a_list_skips_deleted_targets;
        lost_replies: results_with_a_lost_response_are_stored_once, transitions_with_a_lost_response_are_made_once,
            documents_with_a_lost_response_are_stored_once;
        strong: reads_of_the_table_are_consistent;
        target: a_missing_table_is_broken_and_a_missing_network_retryable;
    ]
}
