use std::fmt;

/// A violation with its place, reason and fix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodspecViolation {
    /// For example `spec.containers[main].securityContext.privileged`. List items are shown by name if they have one.
    pub path: String,
    pub why: String,
    pub help: String,
}

impl fmt::Display for PodspecViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}; {}", self.why, self.help)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ViolationList(pub(crate) Vec<PodspecViolation>);

impl ViolationList {
    pub(crate) fn add(&mut self, path: impl Into<String>, why: impl Into<String>, help: impl Into<String>) {
        self.0.push(PodspecViolation { path: path.into(), why: why.into(), help: help.into() });
    }
}

pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
