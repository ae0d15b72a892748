//! What comes from outside and is wrong: callbacks, lifecycle webhooks and requests to the api of a whole stack. The
//! test program plays the supervisor of pod units too, by re-execution.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod api;
mod callbacks;
mod webhooks;
#[path = "../lives/world.rs"]
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
        api: tokens roles unknown_routes_and_methods bodies plugins_in_use every_documented_route_answers logs;
        callbacks: tokens_that_are_not_ours bodies_that_are_none tokens_of_others expired outputs_that_break_the_contract
            twice after_a_failure after_a_cancel said_again_after_the_successor_was_accepted;
        webhooks: signatures times_and_alterations events_that_are_none bodies documents lives_out_of_order
            repetitions one_name_two_lives a_third_life_does_not_displace_the_second;
    };
    libtest_mimic::run(&arguments, tests).exit();
}
