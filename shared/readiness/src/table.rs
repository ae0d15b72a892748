//! Which contract an object is judged by.

use serde_json::Value;

use crate::conditions::{self, End};
use crate::contracts;
use crate::generation;
use crate::object::Object;
use crate::verdict::Verdict;

/// A line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The API group, `""` for the core's; `*.example.org` for it and all below.
    pub(crate) group: &'static str,
    /// Kinds; `*` alone for all, `*End` for all that end so.
    pub(crate) kinds: &'static [&'static str],
    pub(crate) by: By,
}

/// How an object is judged.
pub(crate) enum By {
    /// It has no status to wait for.
    Applied,
    /// Its controller has seen it: `status.observedGeneration` is there and right.
    Observed,
    /// All of these conditions are true; some end the waiting.
    Conditions(&'static [&'static str], &'static [End]),
    /// A field of the status that says it all.
    Phase(Phase),
    Own(fn(Object<'_>) -> Verdict),
}

/// A field of the status that says it all.
pub(crate) struct Phase {
    pub(crate) path: &'static str,
    /// What it has when ready; the first is named as awaited.
    pub(crate) ready: &'static [&'static str],
    pub(crate) failed: &'static [&'static str],
    /// Where the words for a failure are.
    pub(crate) message: &'static str,
}

impl Row {
    fn matches(&self, object: Object<'_>) -> bool {
        let group = match self.group.strip_prefix("*.") {
            Some(domain) => object
                .group()
                .strip_suffix(domain)
                .is_some_and(|below| below.is_empty() || below.ends_with('.')),
            None => object.group() == self.group,
        };
        group
            && self.kinds.iter().any(|kind| match kind.strip_prefix('*') {
                Some(end) => object.kind().ends_with(end),
                None => object.kind() == *kind,
            })
    }
}

impl By {
    fn judge(&self, object: Object<'_>) -> Verdict {
        match self {
            Self::Applied => Verdict::Ready,
            Self::Observed => generation::unobserved(object).unwrap_or(Verdict::Ready),
            Self::Conditions(wanted, ends) => conditions::judge(object, wanted, ends),
            Self::Phase(phase) => phase.judge(object),
            Self::Own(judge) => judge(object),
        }
    }
}

impl Phase {
    fn judge(&self, object: Object<'_>) -> Verdict {
        let now = object.text(self.path);
        if self.ready.contains(&now) {
            return Verdict::Ready;
        }
        if self.failed.contains(&now) {
            return Verdict::failed(now, object.text(self.message));
        }
        Verdict::awaits(self.path, now, self.ready.first().copied().unwrap_or_default())
    }
}

/// The name of the contract that an object is judged by; `conditions` for a kind that has none of its own.
pub fn contract(object: &Value) -> &'static str {
    row(Object(object)).map_or("conditions", |row| row.name)
}

pub(crate) fn judge(object: Object<'_>) -> Verdict {
    match row(object) {
        Some(row) => row.by.judge(object),
        None => contracts::unknown::judge(object),
    }
}

/// The first line that fits: families put special kinds before `*`.
fn row(object: Object<'_>) -> Option<&'static Row> {
    contracts::FAMILIES.iter().flat_map(|family| family.iter()).find(|row| row.matches(object))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_line_hides_another() {
        let mut seen = BTreeSet::new();
        for row in contracts::FAMILIES.iter().flat_map(|family| family.iter()) {
            assert!(!row.name.is_empty() && !row.kinds.is_empty());
            for kind in row.kinds {
                assert!(seen.insert((row.group, *kind)), "{} {kind} stands twice", row.group);
                let group = row.group.trim_start_matches("*.");
                let kind = kind.replace('*', "Any");
                let object = serde_json::json!({"apiVersion": format!("{group}/v1"), "kind": kind});
                assert_eq!(contract(&object), row.name, "{group} {kind} is judged by an earlier line");
            }
        }
    }
}
