//! Counts of tests in the output of cargo.

use std::fmt;

/// The number of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestSummary {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl TestSummary {
    /// Adds a test that cargo does not count.
    pub(crate) fn add(&mut self, has_passed: bool) {
        let count = if has_passed { &mut self.passed } else { &mut self.failed };
        *count += 1;
    }

    /// Adds the counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`. Ignores other lines.
    pub(crate) fn read(&mut self, line: &str) {
        let Some(counts) = line.trim_start().strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.1.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for TestSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored } = self;
        let result = if *failed == 0 { "ok" } else { "FAILED" };
        write!(f, "test result: {result}. {passed} passed; {failed} failed; {ignored} ignored")
    }
}

#[cfg(test)]
mod tests {
    use super::TestSummary;

    #[test]
    fn adds_up_and_ignores_other_lines() {
        let mut summary = TestSummary::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test of::result: ok",
            "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            summary.read(line);
        }
        assert_eq!(summary, TestSummary { passed: 4, failed: 2, ignored: 1 });
        assert_eq!(summary.to_string(), "test result: FAILED. 4 passed; 2 failed; 1 ignored");
    }
}
