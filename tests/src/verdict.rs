//! How a program ends that measures and checks what it has measured.

use std::process::ExitCode;

/// 0 where all holds; 1 where something does not, each on a line of standard error; 2 where it could not be measured.
pub fn exit(checked: anyhow::Result<Vec<String>>) -> ExitCode {
    match checked {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            for line in broken {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
