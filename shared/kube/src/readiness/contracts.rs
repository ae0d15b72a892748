//! The contracts of operators by group and kind (`contracts/rows.yaml`). Each row names the source of its rule.

mod cluster_api;
mod operators;

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::readiness::object::{ObjectReadiness, ObjectView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContractRow {
    group: String,
    kinds: Vec<String>,
    rule: ContractRule,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ContractRule {
    /// Judged by a latch of Cluster API: a field of `status.initialization`, that of v1beta1, and one that must exist.
    Latched {
        new: String,
        old: String,
        also: Option<String>,
    },
    Own(#[serde(deserialize_with = "own")] ContractFunction),
}

type ContractFunction = fn(ObjectView<'_>) -> ObjectReadiness;

fn own<'de, D: Deserializer<'de>>(name: D) -> Result<ContractFunction, D::Error> {
    Ok(match String::deserialize(name)?.as_str() {
        "clusterApi" => cluster_api::core,
        "clusterApiAddress" => cluster_api::address,
        "application" => operators::application,
        "crossplaneDefinition" => operators::crossplane_definition,
        "kroGraph" => operators::kro_graph,
        "kroInstance" => operators::kro_instance,
        "flux" => operators::flux,
        "fluxStatic" => operators::flux_static,
        other => return Err(D::Error::custom(format!("unknown rule `{other}`"))),
    })
}

static ROWS: LazyLock<Vec<ContractRow>> = LazyLock::new(|| {
    let rows = serde_saphyr::from_str(include_str!("contracts/rows.yaml")).expect("the table is YAML");
    serde_json::from_value(rows).expect("the table has contracts")
});

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
                None => object.kind() == kind,
            })
    }
}

impl ContractRule {
    fn judge(&self, object: ObjectView<'_>) -> ObjectReadiness {
        match self {
            Self::Latched { new, old, also } => cluster_api::latched(object, new, old, also.as_deref()),
            Self::Own(judge) => judge(object),
        }
    }
}

pub(crate) fn judge(object: ObjectView<'_>) -> ObjectReadiness {
    let row = ROWS.iter().find(|row| row.matches(object));
    row.map_or_else(|| operators::unknown(object), |row| row.rule.judge(object))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_row_hides_another() {
        let mut seen = BTreeSet::new();
        for (number, row) in ROWS.iter().enumerate() {
            assert!(!row.kinds.is_empty());
            for kind in &row.kinds {
                assert!(seen.insert((&row.group, kind)), "{} {kind} occurs twice", row.group);
                let group = row.group.trim_start_matches("*.");
                let kind = kind.replace('*', "Any");
                let object = serde_json::json!({"apiVersion": format!("{group}/v1"), "kind": kind});
                let first = ROWS.iter().position(|row| row.matches(ObjectView(&object)));
                assert_eq!(first, Some(number), "{group} {kind} matches an earlier row");
            }
        }
    }
}
