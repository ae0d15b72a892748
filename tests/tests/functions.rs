//! Tests of the functions in a complete stack on one machine, over HTTP, with test servers and real scripts.
//! `lifecycle` tests targets from their creation to their end. `security` tests hostile and invalid input. The test
//! program is also the supervisor of pod units, by re-execution.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod security {
    pub(crate) mod api;
    pub(crate) mod api_tokens;
    pub(crate) mod changes;
    pub(crate) mod console;
    pub(crate) mod console_pages;
    pub(crate) mod credentials;
    pub(crate) mod identity_tokens;
    pub(crate) mod issuer_sign_in;
    pub(crate) mod polls;
    pub(crate) mod raw_requests;
    pub(crate) mod registrations;
    pub(crate) mod secrets;
    pub(crate) mod target_access;
    pub(crate) mod target_actions;
}
mod lifecycle {
    pub(crate) mod documented;
    pub(crate) mod effects;
    pub(crate) mod monitoring;
    pub(crate) mod plugin_units;
    pub(crate) mod preset_lives;
    pub(crate) mod providers;
    pub(crate) mod retention;
    pub(crate) mod subscriptions;
}
#[path = "lifecycle/harness.rs"]
mod harness;
#[path = "lifecycle/request_table.rs"]
mod request_table;

use std::path::PathBuf;

use libtest_mimic::{Arguments, Trial};

/// Number of concurrent tests. Most of their time, tests wait for their stack.
const TEST_THREADS: usize = 6;

macro_rules! tests {
    ($area:ident $($module:ident: $($name:ident)*;)*) => {
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

fn lifecycle_trials() -> Vec<Trial> {
    tests! { lifecycle
        effects: fast_callbacks_cost_no_acceptance the_newest_update_waits_for_the_run
            a_failed_setup_is_corrected_by_an_update a_notification_ends_without_a_platform;
        preset_lives: each_scheme_has_a_target_from_its_creation_to_its_end each_preset_is_documented;
        documented: a_merge_request_shows_the_results_of_its_target templates_of_argo_cd_send_events
            requests_by_curl;
        retention: records_of_possible_resources_are_kept an_unreadable_instance_is_postponed
            objects_without_a_record_are_removed an_announced_removal_waits_without_the_plan
            a_removed_run_takes_no_results
            a_new_instance_does_not_shorten_the_retention_of_the_former_one
            a_damaged_expiry_does_not_block_other_instances;
        plugin_units: a_collection_is_made_once_and_destroyed_in_reverse_order
            several_instances_with_the_tag_are_refused_and_listed an_instance_without_its_outputs_is_destroyed
            a_plugin_without_its_instances_is_stuck;
        subscriptions: a_pull_request_shows_the_phases_of_its_target;
        monitoring: targets_and_attempts_are_counted;
    }
}

fn security_trials() -> Vec<Trial> {
    tests! { security
        api: scopes checks;
        changes: the_feed_names_changed_targets the_feed_costs_little;
        console: actions_need_their_scope a_configured_token_of_any_form_signs_in;
        console_pages: responses_are_compressed an_open_page_without_news_costs_little an_ended_session_gets_no_news;
        credentials: a_request_that_may_have_been_sent_is_undone access_tokens_are_renewed
            a_server_requires_a_client_certificate;
        issuer_sign_in: a_person_signs_in_at_an_issuer a_session_ends_with_the_trust_in_its_issuer
            answers_of_other_browsers_are_refused answers_of_other_issuers_are_refused claims_of_the_userinfo_endpoint
            failures_of_an_issuer_are_explained endpoints_that_cannot_be_trusted;
        polls: queued_batches_are_encrypted;
        raw_requests: headers_are_checked_before_bodies large_headers_and_urls
            a_request_is_processed_after_its_client_disconnects;
        registrations: concurrent_relays_share_no_token an_entry_keeps_its_cluster a_bootstrap_token_expires
            a_registered_cluster_is_used_at_once nothing_is_left_of_a_deleted_cluster
            documents_are_checked_against_the_reported_policy;
        target_access: pages_name_no_foreign_target a_history_names_no_foreign_entry
            a_slow_request_reaches_no_later_owner no_route_reaches_a_foreign_target;
        target_actions: a_selection_is_handled_in_parts a_target_is_not_begun_late;
    }
}

fn main() {
    ebb_local::pods::supervise_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TEST_THREADS);
    // The longest tests come first.
    let tests = [lifecycle::providers::trials(), lifecycle_trials(), security_trials(), request_table::trials()];
    let tests = tests.into_iter().flatten().collect();
    log();
    let ended = libtest_mimic::run(&arguments, tests);
    let _ = std::fs::remove_file(log_file());
    ended.exit();
}
