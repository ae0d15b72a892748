//! Scripts as real processes. The test program executes itself again as supervisor, entrypoint and owner of a relay.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod ends;
mod fixture;
mod isolation;
mod names;
mod outputs;
mod outside;
#[path = "../../../../tests/src/wait.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod wait;

use libtest_mimic::{Arguments, Trial};

macro_rules! tests {
    ($($module:ident: $($name:ident)*;)*) => {
        vec![$($(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            fixture::block_on(async { Box::pin($module::$name(fixture::PodsFixture::new())).await });
            Ok(())
        }),)*)*]
    };
}

fn main() {
    ebb_local::pods::supervise_if_asked();
    outside::own_if_asked();
    let tests = tests! {
        ends: expired_requests_are_not_accepted progress last_line cancel_kills cancel_of_the_ended;
        isolation: tmp_is_private declared_paths_anywhere nothing_left_on_the_host machine_files_stay_readable
            state_is_hidden environment_is_clean;
        names: ensure_is_idempotent many_at_once requests_do_not_wait_for_starts cancel_before_ensure higher_attempts_replace_lower
            cancel_races_ensure callbacks_until_taken acknowledge_and_prune refused;
        outputs: too_large sensitive sensitive_values released inputs_replace_files unusable_input;
        outside: supervisor_killed supervisor_asked_to_end children_without_environment_die
            stopped_entrypoint_at_the_deadline stopped_entrypoint_and_a_cancel owner_killed crash_before_the_start;
    };
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}
