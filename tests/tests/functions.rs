//! The functions in a whole stack on one machine: over HTTP, with servers that answer and scripts that run. `lifecycle`
//! has instances of targets, from the webhook that creates them to the notification of their end; `security` has hostile
//! and wrong input. The test program plays the supervisor of pod units too, by re-execution.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod security {
    pub(crate) mod api;
    pub(crate) mod callbacks;
    pub(crate) mod connections;
    pub(crate) mod heads;
    pub(crate) mod orphans;
    pub(crate) mod polls;
    pub(crate) mod secrets;
    pub(crate) mod sizes;
    pub(crate) mod updates;
    pub(crate) mod users;
    pub(crate) mod waits;
    pub(crate) mod webhooks;
}
mod lifecycle {
    pub(crate) mod late;
    pub(crate) mod many;
    pub(crate) mod platform;
    pub(crate) mod removal;
    pub(crate) mod retention;
    pub(crate) mod setup;
    pub(crate) mod teardown;
}
#[path = "lifecycle/harness.rs"]
mod harness;

use std::path::PathBuf;

use libtest_mimic::{Arguments, Trial};

/// Tests mostly wait for a stack of their own.
const AT_A_TIME: usize = 6;

macro_rules! tests {
    ($($area:ident::$module:ident: $($name:ident)*;)*) => {
        vec![$($(Trial::test(concat!(stringify!($area), "::", stringify!($module), "::", stringify!($name)), || {
            harness::block_on($area::$module::$name());
            Ok(())
        }),)*)*]
    };
}

/// Returns the file with the logs of all stacks, at the finest level of this project's crates.
fn log_file() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("functions-{}.log", std::process::id()))
}

fn log() {
    let filter = "info,ebb_api=trace,ebb_flow=trace,ebb_relay_client=trace,ebb_store=trace,ebb_local=trace,ebb_egress=trace,ebb_protocol=trace";
    let file = std::fs::File::create(log_file()).unwrap();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
}

fn main() {
    ebb_local::pods::supervise_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let tests = tests! {
        // Those that wait longest come first.
        lifecycle::late: after_the_teardown a_condition_of_an_undo_counts_for_each_result
            a_repeated_try_undoes_the_same a_new_pass_undoes_everything a_late_success_and_an_undo_that_goes_on both_tries_count;
        lifecycle::teardown: a_script_that_is_deaf what_never_started_is_left_alone before_and_after_the_stop
            gives_up_and_is_retried gives_up_and_is_force_completed gives_up_and_is_force_deleted
            not_there_counts_as_done a_receiver_that_acts_after_its_timeout what_an_answer_says_of_the_backend
            an_undo_that_ends_after_a_force_delete an_undo_has_the_key_of_what_it_undoes;
        lifecycle::setup: failure_upstream answers a_script_is_retried accepted_together
            asked_again_then_accepted deadlines skipping failure_after_ready not_idempotent_with_an_unknown_outcome
            not_idempotent_and_described not_idempotent_and_looked_at_while_it_is_posted
            what_never_started_is_not_listed;
        lifecycle::platform: time_to_live outcomes_until_they_are_taken a_restart_in_between;
        lifecycle::retention: instances_are_removed_after_their_retention what_may_exist_keeps_its_records
            what_is_not_over_keeps_its_records what_cannot_be_looked_at_is_put_off objects_without_a_record_are_removed
            without_a_retention_everything_is_kept;
        lifecycle::removal: a_run_that_another_instance_removed_is_gone a_target_is_forgotten_before_its_runs
            a_name_that_is_taken_again_keeps_the_former_instance damaged_items_keep_no_other_instance
            a_removal_that_hangs_keeps_no_other_instance lost_outputs_are_named;
        lifecycle::many: outputs_that_nothing_refers_to_are_not_read an_undo_reads_only_what_it_uses gone_targets_are_listed_apart
            a_withdrawn_version_serves_those_that_have_it;
        security::api: tokens roles checks unknown_routes_and_methods bodies versions_are_immutable
            every_documented_route_answers logs names_in_paths;
        security::callbacks: tokens_that_are_not_ours bodies_that_are_none tokens_of_others expired expired_at_a_relay
            outputs_that_break_the_contract twice refused_callbacks_are_shown signing_secrets
            a_flood_of_distinct_results a_flood_after_the_end after_a_failure after_a_cancel what_a_receiver_can_do_with_its_token of_an_earlier_try;
        security::connections: answers_do_not_wait_for_receivers answers_do_not_wait_for_the_platform
            a_repeated_callback_posts_nothing_again a_callback_whose_sender_leaves_is_processed
            an_event_whose_sender_leaves_is_processed;
        security::heads: heads unproven_bodies;
        security::orphans: what_is_listed_and_what_is_deleted_unasked what_is_deleted_when_asked;
        security::polls: proofs answers what_relays_answer batches_that_are_not_fetched;
        security::secrets: canary evidence plain_values references_from_receivers of_a_late_success;
        security::sizes: headers_and_urls outputs documents;
        security::updates: what_changes_nothing an_update_retries_what_has_failed
            an_update_of_what_waits;
        security::users: values_stay_values header_injection places_are_not_templates addresses_inside;
        security::waits: an_outcome_that_the_platform_does_not_accept every_unit_that_failed a_unit_between_two_tries
            a_plan_that_is_lost;
        security::webhooks: signatures times_and_alterations bodies binary_mode documents
            instances_out_of_order repetitions one_name_two_instances a_third_instance_does_not_displace_the_second;
    };
    log();
    let ended = libtest_mimic::run(&arguments, tests);
    let _ = std::fs::remove_file(log_file());
    ended.exit();
}
