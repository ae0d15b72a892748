//! Lives of targets in a whole stack on one machine, from the webhook that begins them to the outcome that ends them:
//! over HTTP, with servers that answer and scripts that run. The test program plays the supervisor of pod units too,
//! by re-execution.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod large;
mod late;
mod many;
mod platform;
mod removal;
mod retention;
mod setup;
mod teardown;
#[allow(dead_code)]
mod world;

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

fn main() {
    ebb_local::pods::supervise_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let tests = tests! {
        // Those that wait longest come first.
        late: after_the_teardown a_condition_of_an_undo_counts_for_each_result a_repeated_try_undoes_the_same a_new_pass_undoes_everything a_late_success_and_an_undo_that_goes_on
            two_tries_after_the_undo two_tries_after_a_scripts_undo both_tries_count
            two_tries_while_settling a_third_try_after_two_undos ever_more_results_of_one_try;
        teardown: a_script_that_is_deaf what_never_started_is_left_alone before_and_after_the_stop gives_up_and_is_retried
            gives_up_and_is_skipped gives_up_and_is_abandoned not_there_counts_as_done a_receiver_that_acts_after_its_timeout
            a_gateway_that_gives_up_says_nothing_of_its_backend an_answer_of_the_backend_is_final
            an_undo_that_ends_after_it_was_abandoned why_a_target_is_gone an_undo_has_the_key_of_what_it_undoes;
        setup: failure_upstream retries_until_it_succeeds a_script_is_retried waits_as_long_as_asked asks_again
            accepted_together asked_again_then_accepted gone_is_final deadlines skipping failure_after_ready
            not_idempotent_with_an_unknown_outcome not_idempotent_and_described
            not_idempotent_and_looked_at_while_it_is_posted what_never_started_is_not_listed;
        platform: time_to_live outcomes_until_they_are_taken a_restart_in_between;
        retention: lives_are_removed_after_their_retention what_may_exist_keeps_its_records
            what_is_not_over_keeps_its_records what_cannot_be_looked_at_is_put_off
            objects_without_a_record_are_removed without_a_retention_everything_is_kept;
        removal: a_run_that_another_instance_removed_is_gone a_target_is_forgotten_before_its_runs
            a_name_that_is_taken_again_keeps_the_former_life damaged_items_keep_no_other_life
            a_removal_that_hangs_keeps_no_other_life lost_outputs_are_named;
        many: outputs_that_nothing_refers_to_are_not_read an_undo_reads_only_what_it_uses a_plugin_is_read_once_however_many_resources_have_it
            gone_targets_are_in_nobodys_way a_withdrawn_version_serves_those_that_have_it;
        large: out_and_in_over_three_hundred out_and_in_over_six_hundred;
    };
    libtest_mimic::run(&arguments, tests).exit();
}
