//! Every order of the steps of small graphs, and each rule of the state protocol left out once. Each case is a test.
//!
//! Needs the feature `switches`; `cargo xtask model` prints how much was gone through.

use ebb_flow::switch::Rule;
use ebb_tests::model::{cases, explore, notice};
use libtest_mimic::{Arguments, Failed, Trial};

/// A case that needs more paths has outgrown the tests.
const PATHS: usize = 1_000_000;

fn main() {
    let whole = cases().into_iter().map(|case| {
        Trial::test(case.name.clone(), move || {
            let explored = explore(&case, PATHS);
            match explored.violation {
                Some(violation) => Err(Failed::from(violation)),
                None if !explored.complete => Err(Failed::from(format!("more than {PATHS} paths"))),
                None => Ok(()),
            }
        })
    });
    let rules = Rule::ALL
        .into_iter()
        .map(|rule| Trial::test(format!("noticed: {rule:?}"), move || Ok(notice(rule, PATHS).map(drop)?)));
    libtest_mimic::run(&Arguments::from_args(), whole.chain(rules).collect()).exit();
}
