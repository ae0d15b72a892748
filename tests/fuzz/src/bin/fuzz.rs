//! Runs the target of `EBB_FUZZ_TARGET` with libFuzzer, which reads the arguments.
#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls in by a C symbol")]

use std::sync::OnceLock;

use ebb_fuzz::FuzzTarget;

static TARGET: OnceLock<FuzzTarget> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("EBB_FUZZ_TARGET").unwrap_or_default();
        FuzzTarget::named(&name).expect("EBB_FUZZ_TARGET names a target")
    });
    target.run(input);
});
