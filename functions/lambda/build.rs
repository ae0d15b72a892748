//! How the functions on Lambda are linked.
//!
//! A program that may lie anywhere has its 75,000 addresses written into it each time it starts, which took half of a
//! function's start. Linked to a fixed place it has none. Stack, heap and libraries still lie where the kernel chooses.

fn main() {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
