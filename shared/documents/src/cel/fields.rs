//! The fields that an expression reads: paths of constant names, such as `body.pull_request.number`.

use std::collections::{BTreeMap, BTreeSet};

use cel::common::types::{CelMap, CelMapKey, CelNull};

use crate::cel::path::{PathKey, SelectionPath, step};
use crate::cel::{CelValue, Expression, RootVariable, walk};

impl Expression {
    /// Returns the fields that the expression reads. A field ends before a computed key.
    pub fn fields(&self) -> BTreeSet<String> {
        self.paths()
            .iter()
            .map(|path| constant_steps(path).fold(path.root.to_owned(), |at, name| at + &step(name)))
            .collect()
    }

    /// Returns the keys that the expression reads of a field of a root, such as `sha` of `target.labels`. `None` means that
    /// it may read all of them: it computes a key, or it uses the field as a whole.
    pub fn keys_of(&self, root: RootVariable, field: &str) -> Option<BTreeSet<String>> {
        let paths = self.paths();
        let is_of =
            |path: &&SelectionPath<'_>| path.root == root.as_str() && path.name(0).is_none_or(|name| name == field);
        let key = |path: &SelectionPath<'_>| path.name(0).and_then(|_| path.name(1)).map(str::to_owned);
        paths.iter().filter(is_of).map(key).collect()
    }

    /// Returns a field whose value is null: one of which the expression reads a part, or else any.
    pub(crate) fn null_field(&self, variables: &BTreeMap<&str, CelValue<'_>>) -> Option<String> {
        let mut whole = None;
        for path in self.paths() {
            let Some(mut value) = variables.get(path.root).map(AsRef::as_ref) else { continue };
            let mut field = path.root.to_owned();
            for (nth, name) in (1..).zip(constant_steps(&path)) {
                let map = value.downcast_ref::<CelMap<'_>>();
                let Some(inner) = map.and_then(|map| map.inner().get(&CelMapKey::from(name))) else { break };
                value = inner.as_ref();
                field.push_str(&step(name));
                if value.downcast_ref::<CelNull>().is_some() {
                    if nth < path.steps.len() {
                        return Some(field);
                    }
                    whole = whole.or(Some(std::mem::take(&mut field)));
                }
            }
        }
        whole
    }

    /// Returns the paths that begin with a root variable, in the order of the tree.
    fn paths(&self) -> Vec<SelectionPath<'_>> {
        let mut paths = Vec::new();
        let mut open = vec![&self.tree];
        while let Some(expr) = open.pop() {
            let Some(path) = SelectionPath::of(expr) else {
                open.extend(walk::children(expr).into_iter().rev());
                continue;
            };
            open.extend(path.steps.iter().filter_map(|step| match step.key {
                PathKey::Dynamic(key) => Some(key),
                PathKey::Name(_) => None,
            }));
            // `item` has no fields, so it is a variable of a loop.
            if RootVariable::named(path.root).is_some_and(|root| root != RootVariable::Item) {
                paths.push(path);
            }
        }
        paths
    }
}

/// Returns the names of a path up to its first computed key.
fn constant_steps<'a>(path: &SelectionPath<'a>) -> impl Iterator<Item = &'a str> {
    (0..path.steps.len()).map_while(move |step| path.name(step))
}
