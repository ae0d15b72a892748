//! Links the functions on Lambda to a fixed address.
//!
//! A position-independent program relocates 75,000 addresses at each start, which took half of a cold start. The kernel
//! still chooses the addresses of stack, heap and libraries (docs/src/decisions/aws.md).

fn main() {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
