//! Checked plugins, and resources bound to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::BoundPlugin;
use super::collector::ExpressionRead;
use super::sensitive::{Sensitivity, TextRole};
use crate::diagnostic::Diagnostic;
use crate::expr::{ReferenceSource, TextPattern};
use crate::model::{LineColumn, ParamDoc, PluginDoc, SourceText, UnitDoc};
use crate::plan::{HookName, Template, UnitPlan, UnitRef};

/// A checked plugin.
#[derive(Debug)]
pub(super) struct CheckedPlugin<'a> {
    pub(super) plugin: &'a PluginDoc,
    /// All units in the order of the document.
    pub(super) units: Vec<CompiledUnit<'a>>,
    pub(super) by_name: HashMap<&'a str, usize>,
    pub(super) params: BTreeMap<&'a str, CheckedParam<'a>>,
    pub(super) outputs: BTreeMap<&'a str, CheckedOutput<'a>>,
    pub(super) warnings: Vec<Diagnostic>,
}

/// A declared param with its compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct CheckedParam<'a> {
    pub(super) doc: &'a ParamDoc,
    pub(super) pattern: Option<TextPattern>,
}

/// A checked public output.
#[derive(Debug)]
pub(super) struct CheckedOutput<'a> {
    pub(super) value: Template,
    pub(super) sensitivity: Sensitivity,
    pub(super) uses: Vec<ExpressionRead<'a>>,
}

/// A unit with everything that it reads. The key in `plan` is the name of the unit, and `plan` has no edges yet.
#[derive(Clone, Debug)]
pub(super) struct CompiledUnit<'a> {
    pub(super) doc: &'a UnitDoc,
    pub(super) hook: HookName,
    pub(super) plan: UnitPlan,
    pub(super) cluster: Option<UnitCluster>,
    pub(super) uses: Vec<(TextRole, ExpressionRead<'a>)>,
    /// The value of each input that consists of exactly one value.
    pub(super) wholes: Vec<Option<ReferenceSource>>,
    /// Units of the same plugin, by position.
    pub(super) after: Vec<usize>,
    /// Units of the same plugin, by position.
    pub(super) undoes: Vec<usize>,
}

/// The cluster that the document sets for a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitCluster {
    Named(String),
    /// The cluster that is the value of this param.
    Param(String),
}

/// A resource with its plugin.
#[derive(Debug)]
pub(super) struct BoundResource<'a> {
    pub(super) name: &'a str,
    pub(super) source: &'a Arc<SourceText>,
    pub(super) bound: BoundPlugin<'a>,
    pub(super) checked: Arc<CheckedPlugin<'a>>,
    pub(super) params: BTreeMap<&'a str, ParamBinding<'a>>,
    /// The plan reference of each unit of the plugin.
    pub(super) unit_refs: Vec<UnitRef>,
}

/// The value of a param.
#[derive(Debug)]
pub(super) struct ParamBinding<'a> {
    pub(super) value: Template,
    pub(super) uses: Vec<ExpressionRead<'a>>,
    pub(super) at: LineColumn,
}

impl BoundResource<'_> {
    /// Returns the plan reference of a unit.
    pub(super) fn at(&self, unit: &str) -> Option<UnitRef> {
        self.unit_refs.get(*self.checked.by_name.get(unit)?).copied()
    }
}
