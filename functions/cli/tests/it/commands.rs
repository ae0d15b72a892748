//! Commands that need no server.

use std::path::Path;

#[test]
fn commands_print_their_snapshots() {
    let cases = trycmd::TestCases::new();
    cases.register_bin("ebb", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd/ebb.sh"));
    cases.env("PROGRAM", env!("CARGO_BIN_EXE_ebb"));
    // A folder NAME.out lets the file NAME run in a temporary folder, so no command finds the state folder of a server.
    for name in ["connection", "documents", "help", "new", "source", "usage"] {
        cases.case(format!("tests/cmd/{name}.trycmd"));
    }
}
