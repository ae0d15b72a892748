//! The contracts by group and kind.

use serde_json::Value;

use crate::conditions::{self, TerminalCondition};
use crate::object::ObjectView;
use crate::object_readiness::ObjectReadiness;
use crate::{contracts, generation};

pub(crate) struct ContractRow {
    pub(crate) name: &'static str,
    /// The API group, `""` for the core group. `*.example.org` also matches subdomains.
    pub(crate) group: &'static str,
    /// Kinds. `*` matches all, `*Suffix` matches a suffix.
    pub(crate) kinds: &'static [&'static str],
    pub(crate) rule: ContractRule,
}

pub(crate) enum ContractRule {
    /// Ready as soon as it is applied.
    Applied,
    /// Ready when `status.observedGeneration` equals the generation.
    Observed,
    /// Ready when all of these conditions are true, failed by a terminal condition.
    Conditions(&'static [&'static str], &'static [TerminalCondition]),
    /// Judged by one field of the status.
    Phase(PhaseField),
    Own(fn(ObjectView<'_>) -> ObjectReadiness),
}

/// A field of the status with its values.
pub(crate) struct PhaseField {
    pub(crate) path: &'static str,
    /// The values of a ready object. The first one is named as awaited.
    pub(crate) ready: &'static [&'static str],
    pub(crate) failed: &'static [&'static str],
    /// The path of the message of a failure.
    pub(crate) message: &'static str,
}

impl ContractRow {
    fn matches(&self, object: ObjectView<'_>) -> bool {
        let group = match self.group.strip_prefix("*.") {
            Some(domain) => {
                object.group().strip_suffix(domain).is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
            None => object.group() == self.group,
        };
        group
            && self.kinds.iter().any(|kind| match kind.strip_prefix('*') {
                Some(end) => object.kind().ends_with(end),
                None => object.kind() == *kind,
            })
    }
}

impl ContractRule {
    fn judge(&self, object: ObjectView<'_>) -> ObjectReadiness {
        match self {
            Self::Applied => ObjectReadiness::Ready,
            Self::Observed => generation::unobserved(object).unwrap_or(ObjectReadiness::Ready),
            Self::Conditions(wanted, ends) => conditions::judge(object, wanted, ends),
            Self::Phase(phase) => phase.judge(object),
            Self::Own(judge) => judge(object),
        }
    }
}

impl PhaseField {
    fn judge(&self, object: ObjectView<'_>) -> ObjectReadiness {
        let now = object.text(self.path);
        if self.ready.contains(&now) {
            return ObjectReadiness::Ready;
        }
        if self.failed.contains(&now) {
            return ObjectReadiness::failed(now, object.text(self.message));
        }
        ObjectReadiness::awaits(self.path, now, self.ready.first().copied().unwrap_or_default())
    }
}

/// Returns the name of an object's contract, or `conditions` for a kind without one.
pub fn contract(object: &Value) -> &'static str {
    row(ObjectView(object)).map_or("conditions", |row| row.name)
}

pub(crate) fn judge(object: ObjectView<'_>) -> ObjectReadiness {
    match row(object) {
        Some(row) => row.rule.judge(object),
        None => contracts::unknown::judge(object),
    }
}

/// Returns the first match. Families list special kinds before `*`.
fn row(object: ObjectView<'_>) -> Option<&'static ContractRow> {
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
