//! What no input may break, as functions that take any bytes and panic where a promise is broken.
//!
//! `tests/fuzz/tests/` runs them in every test run: over the inputs in `crashes/`, each of which once broke something,
//! and over a fixed number of inputs that are made from `seeds/`. `cargo xtask verify fuzz` runs them for as long as it is
//! asked to, guided by coverage. Both kinds of input are text, the parts of one separated by a line `%%%%`.
#![allow(clippy::panic, reason = "a panic is how a target says that a promise is broken")]

use std::time::{Duration, Instant};

mod documents;
mod expressions;
mod messages;
mod placed;
mod requests;
mod tokens;
pub mod worst;

/// The longest input; what is larger than a document of some size finds nothing else, only later.
pub const MAX_INPUT: usize = 16 << 10;

/// The longest time that one input may take, also in a build without optimisation on a busy machine.
pub const MAX_TIME: Duration = Duration::from_secs(10);

/// The stack that an input is tried on: less than what a function's threads have.
const STACK: usize = 1536 << 10;

/// A promise and how it is tried.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name; the folder below `seeds/` and `crashes/` is called so.
    pub name: &'static str,
    run: fn(&InputParts<'_>),
}

pub const TARGETS: [FuzzTarget; 7] = [
    // Documents of both dialects: load, check, compile, store, preview.
    FuzzTarget { name: "documents", run: documents::documents },
    // What a document embeds, pod templates among it.
    FuzzTarget { name: "embeds", run: documents::embeds },
    // Expressions over a webhook's answer.
    FuzzTarget { name: "expressions", run: expressions::expressions },
    // Requests with values of target users in them.
    FuzzTarget { name: "requests", run: requests::requests },
    // Lifecycle webhooks: headers and body.
    FuzzTarget { name: "events", run: messages::events },
    // Callbacks, answers of units, messages of relays, records.
    FuzzTarget { name: "callbacks", run: messages::callbacks },
    // Tokens, keys, ids.
    FuzzTarget { name: "tokens", run: tokens::tokens },
];

impl FuzzTarget {
    /// The target of this name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// Tries one input on a stack of its own. Longer inputs than [`MAX_INPUT`] are cut.
    ///
    /// # Panics
    /// If the promise is broken, or the input took longer than [`MAX_TIME`].
    pub fn run(self, input: &[u8]) {
        let began = Instant::now();
        self.run_whole(&input[..input.len().min(MAX_INPUT)]);
        let took = began.elapsed();
        assert!(took < MAX_TIME, "it took {took:?}");
    }

    /// Tries one input of any length, for as long as it takes, on a stack of its own.
    ///
    /// # Panics
    /// If the promise is broken.
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

/// An input taken apart.
struct InputParts<'a>(Vec<&'a str>);

impl<'a> InputParts<'a> {
    /// The part with this number, from 0; a missing one is empty.
    fn get(&self, number: usize) -> &'a str {
        self.0.get(number).copied().unwrap_or_default()
    }

    /// The parts from this number on.
    fn from(&self, number: usize) -> &[&'a str] {
        self.0.get(number..).unwrap_or_default()
    }
}
