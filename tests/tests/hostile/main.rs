//! What comes from outside and is wrong: callbacks, lifecycle webhooks and requests to the api of a whole stack. The
//! test program plays the supervisor of pod units too, by re-execution.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod api;
mod callbacks;
mod connections;
mod heads;
mod orphans;
mod polls;
mod secrets;
mod sizes;
mod updates;
mod users;
mod waits;
mod webhooks;
#[path = "../lives/world.rs"]
#[allow(dead_code)]
mod world;

use std::path::PathBuf;

use libtest_mimic::{Arguments, Trial};

/// Tests mostly wait for a stack of their own.
const AT_A_TIME: usize = 6;

macro_rules! tests {
    ($($module:ident: $($name:ident)*;)*) => {
        vec![$($(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            world::block_on($module::$name());
            Ok(())
        }),)*)*]
    };
}

/// Where this program's log goes: that of all stacks, down to the finest line of ours.
fn log_file() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{}.log", std::process::id()))
}

fn log() {
    let filter = "info,ebb_flow=trace,ebb_store=trace,ebb_local=trace,ebb_outbound=trace,ebb_wire=trace";
    let file = std::fs::File::create(log_file()).unwrap();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(file).init();
}

fn main() {
    ebb_local::pods::supervise_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let tests = tests! {
        api: tokens roles checks unknown_routes_and_methods bodies versions_are_immutable every_documented_route_answers logs names_in_paths;
        callbacks: tokens_that_are_not_ours bodies_that_are_none tokens_of_others expired expired_at_a_relay outputs_that_break_the_contract
            twice asked_again_at_a_date answers_that_are_not_json refused_callbacks_are_shown signing_secrets a_flood_of_distinct_results a_flood_after_the_end after_a_failure after_a_cancel said_again_after_the_successor_was_accepted
            what_a_receiver_can_do_with_its_token of_an_earlier_try;
        connections: answers_do_not_wait_for_receivers answers_do_not_wait_for_the_platform a_repeated_callback_posts_nothing_again
            a_callback_whose_sender_leaves_is_processed an_event_whose_sender_leaves_is_processed;
        heads: heads unproven_bodies;
        orphans: what_is_listed_and_what_is_deleted_unasked what_is_deleted_when_asked;
        polls: proofs answers what_relays_answer nobody_asks;
        secrets: canary evidence plain_values references_from_receivers of_a_late_success;
        sizes: headers_and_urls outputs documents;
        updates: what_changes_nothing what_would_change_something an_update_retries_what_has_failed
            an_update_of_what_waits;
        users: values_stay_values header_injection places_are_not_templates addresses_inside;
        waits: an_outcome_that_the_platform_does_not_accept every_unit_that_failed a_unit_between_two_tries
            a_plan_that_is_lost;
        webhooks: signatures times_and_alterations events_that_are_none bodies binary_mode documents lives_out_of_order
            repetitions one_name_two_lives a_third_life_does_not_displace_the_second;
    };
    log();
    let ended = libtest_mimic::run(&arguments, tests);
    let _ = std::fs::remove_file(log_file());
    ended.exit();
}
