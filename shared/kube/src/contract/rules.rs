//! The contracts by group and kind, and their interpreter. `shared/documents/contracts` has the contracts. A comment at each
//! names the source of its rules.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ebb_cel::EvaluationError;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::contract::causes::{CauseRules, ObjectCause};
use crate::contract::conditions;
use crate::contract::facts::{ContractExpression, ObjectFacts};
use crate::contract::object::{ObjectReadiness, ObjectView};

/// One outcome: `ready`, `failed`, `pending`, `await`, `below` or `conditions`. The last three are pending until they are met.
/// Then the next rule counts, as for a rule whose `if` does not hold.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContractRule {
    #[serde(rename = "if")]
    guard: Option<ContractExpression>,
    ready: bool,
    /// The reason of a failure.
    failed: Option<ContractExpression>,
    /// The message of a failure.
    message: Option<ContractExpression>,
    /// The reason of a pending object.
    pending: Option<ContractExpression>,
    /// A field that must have one of the values `is`. With one of `fails`, the object has failed.
    #[serde(rename = "await")]
    awaited: Option<String>,
    is: Vec<String>,
    fails: Vec<String>,
    /// A number that must be at least `wanted`. The API omits a zero.
    below: Option<String>,
    wanted: Option<ContractExpression>,
    /// Conditions that must be true. `Stalled` is a failure, and `Reconciling` pending, unless `from` names their list.
    conditions: Vec<String>,
    from: Option<String>,
}

/// The API version, the kind, and the annotation with the number of an object that owns pods. Only the one with the largest
/// number counts.
pub type PodOwner = [String; 3];

/// The rules of some kinds. After the last rule, an object is ready.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindContract {
    group: String,
    kinds: Vec<String>,
    #[serde(default)]
    once: bool,
    /// The kinds between an object and its pods.
    pods: Option<Vec<PodOwner>>,
    /// Named values. One that cannot be computed is missing.
    #[serde(default)]
    vars: Vec<(String, ContractExpression)>,
    #[serde(default)]
    rules: Vec<ContractRule>,
    /// What is shown in place of the reason of a pending object.
    shown: Option<ContractExpression>,
}

/// The contracts of all kinds, the causes of their delays and failures, and the words of their texts.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContractTable {
    words: Map<String, Value>,
    contracts: Vec<KindContract>,
    causes: BTreeMap<String, CauseRules>,
}

/// Returns the contracts that are built in.
pub fn built_in() -> &'static ContractTable {
    static TABLE: LazyLock<ContractTable> = LazyLock::new(|| {
        let files = [
            include_str!("../../../documents/contracts/core.yaml"),
            include_str!("../../../documents/contracts/workloads.yaml"),
            include_str!("../../../documents/contracts/pods.yaml"),
            include_str!("../../../documents/contracts/operators.yaml"),
            include_str!("../../../documents/contracts/causes.yaml"),
            include_str!("../../../documents/contracts/scripts.yaml"),
        ];
        ContractTable::read(&files).expect("the contracts are valid")
    });
    &TABLE
}

impl ContractTable {
    /// Reads files of contracts. The order of the files is that of their contracts.
    ///
    /// # Errors
    /// Returns an error if a text is not YAML, has an unknown key, or has an invalid expression.
    fn read(files: &[&str]) -> Result<Self, String> {
        let mut table = Self::default();
        for file in files {
            let file: Value = serde_saphyr::from_str(file).map_err(|error| error.to_string())?;
            let file: Self = serde_json::from_value(file).map_err(|error| error.to_string())?;
            table.words.extend(file.words);
            table.contracts.extend(file.contracts);
            table.causes.extend(file.causes);
        }
        Ok(table)
    }

    /// Finds out why an object waits or has failed, by the causes with this name. `events` are the warnings about it, the newest
    /// first, with `reason`, `message`, `firstMs` and `lastMs`. `facts` are what else the causes read.
    pub fn cause(&self, name: &str, object: &Value, events: Value, facts: Value) -> Option<ObjectCause> {
        let mut known = ObjectFacts::new(ObjectView(object), &self.words);
        known.set("events", events);
        known.set("facts", facts);
        self.causes.get(name)?.find(&mut known)
    }

    /// Returns the kinds that may own the pods of an object in its place, or `None` for a kind without pods.
    pub fn pod_owners(&self, object: &Value) -> Option<&[PodOwner]> {
        self.of(ObjectView(object))?.pods.as_deref()
    }

    pub(super) fn runs_once(&self, object: ObjectView<'_>) -> bool {
        self.of(object).is_some_and(|contract| contract.once)
    }

    fn of(&self, object: ObjectView<'_>) -> Option<&KindContract> {
        self.contracts.iter().find(|contract| contract.matches(object))
    }

    /// Judges an object by the contract of its kind.
    pub(super) fn judge(&self, object: ObjectView<'_>) -> ObjectReadiness {
        let Some(contract) = self.of(object) else {
            return ObjectReadiness::pending("there is no contract of its kind");
        };
        let mut facts = ObjectFacts::new(object, &self.words);
        facts.add_vars(&contract.vars);
        let found = contract.rules.iter().find_map(|rule| rule.apply(&facts).transpose());
        let verdict = found.unwrap_or(Ok(ObjectReadiness::Ready));
        match (verdict, &contract.shown) {
            (Ok(ObjectReadiness::Pending { reason }), Some(shown)) => {
                facts.set("why", reason.clone().into());
                ObjectReadiness::pending(facts.text(shown).unwrap_or(reason))
            }
            (Ok(verdict), _) => verdict,
            (Err(error), _) => ObjectReadiness::pending(format!("its status cannot be judged: {error}")),
        }
    }
}

impl KindContract {
    fn matches(&self, object: ObjectView<'_>) -> bool {
        let (group, kind) = (object.group(), object.kind());
        let is_of = |end: &str| format!(".{group}").ends_with(end);
        self.group.strip_prefix('*').map_or(self.group == group, is_of)
            && self.kinds.iter().any(|it| it.strip_prefix('*').map_or(it == kind, |end| kind.ends_with(end)))
    }
}

impl ContractRule {
    /// Returns the outcome, or nothing if the next rule counts.
    fn apply(&self, facts: &ObjectFacts<'_>) -> Result<Option<ObjectReadiness>, EvaluationError> {
        let object = facts.object;
        if let Some(guard) = &self.guard
            && facts.evaluate(guard)? != Some(Value::Bool(true))
        {
            return Ok(None);
        }
        if self.ready {
            return Ok(Some(ObjectReadiness::Ready));
        }
        let message = || self.message.as_ref().map_or(Ok(String::new()), |message| facts.text(message));
        if let Some(reason) = &self.failed {
            return Ok(Some(ObjectReadiness::failed(facts.text(reason)?, message()?)));
        }
        if let Some(why) = &self.pending {
            return Ok(Some(ObjectReadiness::pending(facts.text(why)?)));
        }
        if let Some(field) = &self.awaited {
            let now = object.text(field);
            if self.fails.iter().any(|value| value == now) {
                return Ok(Some(ObjectReadiness::failed(now, message()?)));
            }
            let wanted = self.is.first().map_or("", String::as_str);
            let is_met = self.is.iter().any(|value| value == now);
            return Ok((!is_met).then(|| ObjectReadiness::awaits(field, now, wanted)));
        }
        if let Some((field, wanted)) = self.below.as_ref().zip(self.wanted.as_ref()) {
            let now = object.number(field).unwrap_or(0);
            // One replica is the default of the API.
            let wanted = facts.evaluate(wanted)?.and_then(|wanted| wanted.as_i64()).unwrap_or(1);
            let pending = || ObjectReadiness::pending(format!("`{field}` is {now}, {wanted} are awaited"));
            return Ok((now < wanted).then(pending));
        }
        let usual = if self.from.is_none() { conditions::abnormal(object) } else { None };
        let listed = object.conditions_at(self.from.as_deref().unwrap_or("status.conditions"));
        Ok(usual.or_else(|| conditions::first_missing(object, listed, &self.conditions)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn no_contract_hides_another() {
        let mut seen = BTreeSet::new();
        for contract in &built_in().contracts {
            assert!(!contract.kinds.is_empty());
            for kind in &contract.kinds {
                assert!(seen.insert((&contract.group, kind)), "{} {kind} occurs twice", contract.group);
                let group = contract.group.trim_start_matches("*.");
                let kind = kind.replace('*', "Any");
                let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
                let first = built_in().of(ObjectView(&object));
                assert!(std::ptr::eq(first.unwrap(), contract), "{group} {kind} matches an earlier contract");
            }
        }
    }
}
