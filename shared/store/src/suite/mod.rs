//! Tests that every table must pass: DynamoDB Local, the embedded table, or another one.
//!
//! A test program passes the address of a table with DynamoDB's protocol and runs [`trials`]. Each test has its own
//! table and bucket. A proxy between SDK and table refuses requests and drops responses. Every test with a fault
//! asserts that the fault occurred.

use std::fmt;

use libtest_mimic::Trial;

mod batch_queue;
mod capacity;
mod conditions;
mod document;
mod dynamodb_local;
mod expiry;
mod faults;
mod fixture;
mod hints;
mod list;
mod lost_replies;
mod model;
mod proxy;
mod record;
mod sizes;
mod strong;
mod target;
mod transactions;

pub use dynamodb_local::DynamoDbLocal;
pub use fixture::s3_bucket;

use fixture::StoreFixture;

/// A table under test.
#[derive(Clone, Debug)]
pub struct TableUnderTest {
    /// The prefix of its test names.
    pub name: &'static str,
    /// Its URL without a slash at the end. Requests are signed with arbitrary keys.
    pub endpoint: String,
    pub differences: TableDifferences,
}

/// Differences between tables that tests observe. The store does not rely on them.
///
/// | | DynamoDB Local | dynoxide |
/// |---|---|---|
/// | a page of a query ends | after the item that passes 1 MB | before it |
/// | write units of a transaction | two per item and per index entry, and all of it twice | two per item, one per index entry |
#[derive(Clone, Copy, Debug)]
pub struct TableDifferences {
    /// The number of pages of a query for eight items of 300 kB.
    pub pages: u64,
    /// Reported write units of a transaction of two small items with three index entries.
    pub start: f64,
}

impl TableDifferences {
    pub const DYNAMODB_LOCAL: Self = Self { pages: 2, start: 20.0 };
    pub const DYNOXIDE: Self = Self { pages: 3, start: 7.0 };
}

impl fmt::Display for TableUnderTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! trials {
    ($table:expr; $($module:ident: $($test:ident),+;)+) => {
        vec![$($({
            let table: TableUnderTest = $table.clone();
            let name = concat!(stringify!($module), "::", stringify!($test));
            Trial::test(format!("{table}::{name}"), move || {
                fixture::runtime().block_on(async { Box::pin($module::$test(StoreFixture::new(&table).await)).await });
                Ok(())
            })
        }),+),+]
    };
}

/// Returns all tests for a table.
pub fn trials(table: &TableUnderTest) -> Vec<Trial> {
    trials![table;
        conditions:
            each_condition_holds_and_does_not_hold,
            conditions_on_an_item_that_is_not_there,
            images_are_the_item_as_it_is_read,
            sets_take_numbers_and_give_them_back,
            an_empty_set_is_no_attribute,
            a_new_run_has_its_facts_and_can_be_read,
            many_writers_of_one_head_lose_nothing;
        document:
            plans_are_kept_in_the_table_or_the_bucket,
            a_refused_life_leaves_no_plan,
            objects_are_replaced,
            plugin_versions_are_published_once,
            a_withdrawn_version_is_in_no_list_and_stays_readable,
            an_object_of_a_plan_is_removed_when_a_reply_is_lost;
        faults:
            what_passes_by_itself_is_not_seen,
            what_does_not_pass_is_retryable,
            what_is_wrong_is_broken,
            a_write_outlasts_a_transaction_on_its_item,
            a_transaction_outlasts_others_on_its_items,
            keys_that_were_not_read_are_asked_for_again,
            a_lost_request_is_sent_again;
        capacity:
            a_completion_is_one_write_and_two_with_outputs,
            a_full_head_stays_below_one_unit,
            a_retry_that_wakes_earlier_costs_three,
            a_start_is_a_transaction_of_two_items,
            a_refusal_is_counted;
        hints:
            a_stale_index_names_what_is_no_longer_due,
            an_index_that_is_behind_loses_nothing,
            an_entry_for_an_item_that_is_gone_does_no_harm,
            an_entry_that_cannot_be_read_is_passed_over,
            due_things_of_many_pages_are_all_found,
            a_list_passes_over_what_is_gone;
        list:
            what_is_due_is_found_until_it_is_not,
            targets_are_listed_by_kind_and_name,
            targets_that_are_gone_have_a_list_of_their_own,
            stale_entries_cost_no_request_each,
            a_page_of_stale_entries_ends,
            a_damaged_target_is_named_in_the_list,
            targets_beyond_one_answer_are_listed;
        expiry:
            lives_expire_when_they_are_due,
            a_damaged_expiry_is_postponed_and_others_are_due,
            a_removed_run_leaves_nothing_and_others_stay,
            objects_are_removed_before_the_records_that_name_them;
        lost_replies:
            an_event_whose_reply_is_lost_has_happened_once,
            results_and_notes_whose_reply_is_lost_are_kept_once,
            moves_whose_reply_is_lost_are_made_once,
            documents_whose_reply_is_lost_are_kept_once;
        batch_queue:
            batches_wait_until_they_are_answered_taken_or_expired,
            large_batches_and_responses_are_in_the_bucket_until_they_are_taken,
            a_queued_batch_is_three_writes,
            a_poll_reads_no_more_than_it_needs,
            a_scan_is_claimed_once,
            an_outage_is_recorded_until_it_ends;
        model:
            heads_are_the_same_through_the_table_as_in_memory;
        record:
            results_are_read_back_as_they_were,
            damaged_evidence_leaves_its_record_readable,
            the_first_result_stays_and_others_are_kept_beside_it,
            distinct_successes_are_kept_up_to_a_bound_and_counted,
            senders_at_one_time_share_the_places,
            notes_come_before_the_result_and_change_nothing_after_it,
            tries_are_accepted_together,
            only_the_units_that_were_asked_for_are_read,
            outlines_are_records_without_outputs,
            records_beyond_one_page_are_all_read;
        sizes:
            too_large_a_change_is_refused_and_changes_nothing,
            too_large_a_target_is_refused_alone_and_in_a_transaction,
            the_largest_that_we_make_has_room,
            keys_that_no_item_can_have_are_not_there,
            the_longest_names_of_targets_are_keys;
        strong:
            reads_of_the_table_are_strong,
            a_write_is_read_at_once_by_everybody;
        target:
            a_target_is_read_back_as_it_was,
            a_move_needs_the_version_that_was_seen,
            of_writers_of_the_very_same_one_wins,
            the_end_of_a_target_leaves_a_tombstone_that_outlives_its_item,
            no_table_is_broken_and_no_network_retryable;
        transactions:
            all_or_nothing,
            many_transactions_on_one_target_and_one_wins,
            a_transaction_and_completions_of_one_item;
    ]
}
