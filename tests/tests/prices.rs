//! What the README says of costs.

use std::process::Command;

#[test]
fn the_readme_says_what_the_command_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_prices")).output().unwrap();
    let (printed, rest) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{rest}");
    let block = format!("$ cargo xtask bench prices\n{printed}```\n");
    assert!(
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))
            .unwrap()
            .contains(&block),
        "the README does not have\n{block}"
    );
}
