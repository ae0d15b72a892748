//! Properties of all inputs: functions that accept any bytes and panic if a property does not hold.
//!
//! `tests/fuzz/tests/` checks them in every test run, with the inputs of earlier failures in `crashes/` and with a
//! fixed number of mutations of `seeds/`. `cargo xtask verify fuzz` checks them for a given time, guided by coverage.
//! Inputs are text; a line `%%%%` separates their parts.
#![allow(clippy::panic, reason = "a target panics if a property does not hold")]

use std::time::{Duration, Instant};

mod documents;
mod expressions;
mod messages;
mod placed;
mod requests;
mod source_bodies;
mod tokens;

/// The longest input, in bytes. Larger ones find the same errors later.
pub const MAX_INPUT: usize = 16 << 10;

/// The longest time of one input, in a build without optimisation on a busy machine.
pub const MAX_TIME: Duration = Duration::from_secs(10);

/// The stack of one input, in bytes: less than that of a function's threads.
const STACK: usize = 1536 << 10;

/// A property of inputs and its test.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name of the target and of its folders in `seeds/` and `crashes/`.
    pub name: &'static str,
    run: fn(&InputParts<'_>),
}

pub const TARGETS: [FuzzTarget; 8] = [
    // Documents of both formats: load, check, compile, store, preview.
    FuzzTarget { name: "documents", run: documents::documents },
    // Embedded files, including pod templates.
    FuzzTarget { name: "embeds", run: documents::embeds },
    // Expressions over the response of a webhook.
    FuzzTarget { name: "expressions", run: expressions::expressions },
    // Requests that contain values of users.
    FuzzTarget { name: "requests", run: requests::requests },
    // Sources on bodies of events.
    FuzzTarget { name: "sources", run: source_bodies::sources },
    // Lifecycle webhooks: headers and body.
    FuzzTarget { name: "events", run: messages::events },
    // Callbacks, responses of units, messages of relays, records.
    FuzzTarget { name: "callbacks", run: messages::callbacks },
    // Tokens, keys, ids.
    FuzzTarget { name: "tokens", run: tokens::tokens },
];

impl FuzzTarget {
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// Runs the first [`MAX_INPUT`] bytes of an input on a stack of its own.
    ///
    /// # Panics
    /// The property does not hold, or the run takes longer than [`MAX_TIME`].
    pub fn run(self, input: &[u8]) {
        let began = Instant::now();
        self.run_whole(&input[..input.len().min(MAX_INPUT)]);
        let took = began.elapsed();
        assert!(took < MAX_TIME, "it took {took:?}");
    }

    /// Runs an input of any length, without a time limit, on a stack of its own.
    ///
    /// # Panics
    /// The property does not hold.
    pub fn run_whole(self, input: &[u8]) {
        let text = String::from_utf8_lossy(input);
        let ended = std::thread::scope(|scope| {
            let work = || (self.run)(&InputParts(text.split("\n%%%%\n").collect()));
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            thread.expect("a thread can be started").join()
        });
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }
}

struct InputParts<'a>(Vec<&'a str>);

impl<'a> InputParts<'a> {
    /// Returns a part by its number, from 0; an empty text if it is missing.
    fn get(&self, number: usize) -> &'a str {
        self.0.get(number).copied().unwrap_or_default()
    }

    /// Returns the parts from this number on.
    fn from(&self, number: usize) -> &[&'a str] {
        self.0.get(number..).unwrap_or_default()
    }
}
