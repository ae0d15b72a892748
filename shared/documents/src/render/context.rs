//! Resolves references, templates and expressions when a unit is rendered.

use std::collections::{BTreeMap, HashMap};

use ebb_engine::Hook;
use serde_json::{Value as Json, json};

use super::{
    Answers, KnownOutputs, LookupResult, MAX_VALUE_BYTES, OpenSealed, ProducerState, RenderError, RenderResult,
    RenderValue, SealedValue, SecretRef, TargetFacts, UnitContext, evaluate,
};
use crate::cel::{EvaluationError, Expression, ReferenceSource, ReferenceUsage, RootVariable, ValueReference, convert};
use crate::plan::{InputPlan, OutputRead, PublicOutput, Template, document_name};
use crate::{HookOwner, Plan, TextPart, UnitPlan, UnitRef, cel, cluster_name, escaping, template};

/// The treatment of an output that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingOutputs {
    Missing,
    Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NullPolicy {
    /// The reader of the param or public output decides.
    PassedOn,
    /// In JSON, `null` of an optional value and `null` that an expression computes are values.
    Kept,
    /// Elsewhere, `null` of an optional value is left out.
    Omitted,
}

/// The known values of one resource.
#[derive(Clone, Copy)]
pub(super) struct RenderContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) facts: &'a TargetFacts,
    pub(super) outputs: &'a KnownOutputs,
    pub(super) unknowns: PendingOutputs,
    /// The resource to which `params` and `units` belong.
    pub(super) resource: &'a str,
    /// The outputs that the reader of `units` reads, also through params.
    pub(super) reads: &'a [OutputRead],
    /// True in a param and in `env`: `units` are the own units of the target.
    pub(super) is_sandbox: bool,
    /// The unit that reads them.
    pub(super) unit: Option<&'a UnitPlan>,
    /// The number of the update whose unit is rendered.
    pub(super) update: Option<u32>,
    pub(super) reader: ValueReader<'a>,
    pub(super) nulls: NullPolicy,
    pub(super) lenience: MissingPolicy,
    /// Decrypts sensitive values. `None` where no sensitive value may be.
    pub(super) open: Option<&'a OpenSealed<'a>>,
    /// The answers to the requests of a webhook unit, and its inputs, if the text reads them.
    pub(super) answers: Option<(Answers<'a>, &'a [InputPlan])>,
    /// True if a selection from an answer of another form is an error. A missing part would count as the absence of a thing or
    /// of a failure.
    pub(super) is_strict: bool,
}

#[derive(Clone, Copy)]
pub(super) enum ValueReader<'a> {
    /// A unit in this cluster. `None` means the default of the control plane.
    Cluster(Option<&'a str>),
    /// A reader of the outputs of a target. A sensitive value is replaced by its location.
    Outside,
}

impl<'a> RenderContext<'a> {
    /// Creates a context for the public values of a resource. For those of the target, `resource` is empty.
    pub(super) fn outside(
        plan: &'a Plan,
        facts: &'a TargetFacts,
        outputs: &'a KnownOutputs,
        resource: &'a str,
        reads: &'a [OutputRead],
    ) -> Self {
        Self {
            plan,
            facts,
            outputs,
            unknowns: PendingOutputs::Missing,
            resource,
            reads,
            is_sandbox: resource.is_empty(),
            unit: None,
            update: None,
            reader: ValueReader::Outside,
            answers: None,
            is_strict: false,
            nulls: NullPolicy::PassedOn,
            lenience: MissingPolicy::Strict,
            open: None,
        }
    }

    pub(super) fn of_unit(context: UnitContext<'a>, unit: &'a UnitPlan) -> Self {
        let UnitContext { plan, at, facts, known } = context;
        let update = match at.hook {
            Hook::Update(number) => Some(number),
            _ => None,
        };
        let reader = ValueReader::Cluster(plan.cluster(unit));
        Self { unit: Some(unit), update, reader, ..Self::outside(plan, facts, known, unit.resource(), &unit.reads) }
    }

    pub(super) fn closed(self) -> Self {
        Self { open: None, ..self }
    }

    pub(super) fn strict(self) -> Self {
        Self { lenience: MissingPolicy::Strict, ..self }
    }

    /// Decrypts a value for its recipient. Other values stay.
    pub(super) fn disclosed(self, made: LookupResult, place: &str) -> RenderResult<LookupResult> {
        let sealed = match made {
            LookupResult::Value(RenderValue::Sealed(sealed)) => sealed,
            other => return Ok(other),
        };
        let Some(open) = self.open else { return Err(sensitive(place, "a value")) };
        Ok(LookupResult::Value(open(&sealed).ok_or_else(|| RenderError::Undecryptable { place: place.to_owned() })?))
    }

    /// Returns the value of a reference, or [`LookupResult::Nothing`] if a part of it is missing.
    pub(super) fn lookup(self, source: &ReferenceSource, place: &str) -> RenderResult<LookupResult> {
        let found = |value: Option<Json>| Ok(value.map_or(LookupResult::Nothing, LookupResult::from));
        // A sensitive value behind a reference is handed on whole.
        let inner = Self { nulls: NullPolicy::PassedOn, ..self.closed() };
        let made = match source {
            ReferenceSource::Target(field) => return found(self.facts.field(field)),
            ReferenceSource::OwnResource(field) if field == "key" && self.facts.key == TargetFacts::UNKNOWN_KEY => {
                return Ok(LookupResult::Placeholder(format!("{}.key", self.resource)));
            }
            ReferenceSource::OwnResource(field) => return found(self.facts.own(self.plan, self.resource, field)),
            ReferenceSource::Root(RootVariable::Item) => {
                return found(self.unit.and_then(|unit| Some(unit.entry.as_ref()?.item.clone())));
            }
            ReferenceSource::Root(root) if self.unknowns == PendingOutputs::Shown => {
                return Ok(LookupResult::Placeholder(root.as_str().to_owned()));
            }
            ReferenceSource::Root(root) => {
                return found(self.answers.and_then(|(answers, _)| match root {
                    RootVariable::Response => Some(answers.response.clone()),
                    RootVariable::Poll => answers.poll.cloned(),
                    _ => None,
                }));
            }
            ReferenceSource::Input(name) => {
                let inputs = self.answers.map(|(_, inputs)| inputs).unwrap_or_default();
                let input = inputs.iter().find(|input| input.name == *name);
                input.map(|input| self.template(&input.value, place))
            }
            ReferenceSource::Output { unit, output } => return self.output(unit, output, place),
            ReferenceSource::Param(name) => {
                let given = self.plan.resource(self.resource).and_then(|resource| resource.params.get(name));
                given.map(|template| inner.param(name, template, place))
            }
            ReferenceSource::OldParam(name) => {
                let former = self.update.and_then(|number| self.plan.resource_before(self.resource, number));
                let given = former.and_then(|(resource, found)| Some((resource, found.params.get(name)?)));
                given.map(|(resource, template)| Self { resource, ..inner }.param(name, template, place))
            }
            ReferenceSource::Resource { resource, output } => {
                let public = self.plan.resource_read(self.resource, resource);
                let public = public.and_then(|(name, found)| Some((name, found.outputs.get(output)?)));
                let inside = |(resource, public): (&'a str, &'a PublicOutput)| {
                    Self { resource, reads: &public.reads, is_sandbox: false, unit: None, ..inner }
                        .template(&public.value, place)
                };
                public.map(inside)
            }
        };
        match made {
            None | Some(Err(RenderError::Missing { .. })) if self.is_optional(source) => Ok(Json::Null.into()),
            None | Some(Err(RenderError::Missing { .. })) => Ok(LookupResult::Nothing),
            Some(other) => other,
        }
    }

    /// Returns true if the document declares that the value may be null.
    fn is_optional(self, source: &ReferenceSource) -> bool {
        match source {
            ReferenceSource::Param(name) => {
                let resource = self.plan.resource(self.resource);
                resource.is_some_and(|resource| resource.optional_params.contains(name))
            }
            ReferenceSource::OldParam(name) => {
                let former = self.update.and_then(|number| self.plan.resource_before(self.resource, number));
                former.is_some_and(|(_, resource)| resource.optional_params.contains(name))
            }
            ReferenceSource::Output { unit, output } => {
                let declared = self.makers(unit, output).next().and_then(|(_, maker)| maker.outputs.get(output));
                declared.is_some_and(|declared| declared.optional)
            }
            _ => false,
        }
    }

    /// Returns the name, in the keys of units, of the resource to which `unit` of `units` belongs.
    fn unit_owner(self, unit: &str) -> &'a str {
        match self.is_sandbox || document_name(self.resource) == HookOwner::TARGET {
            true => self.plan.owner_read(self.resource, HookOwner::TARGET, unit),
            false => self.resource,
        }
    }

    /// Returns the units of the resource with this name whose output is read: several for a list.
    fn makers(self, unit: &str, output: &str) -> impl Iterator<Item = (UnitRef, &'a UnitPlan)> {
        let read = self.reads.iter().filter(move |read| read.output == output);
        let makers = read.filter_map(move |read| Some((read.at, self.plan.unit(read.at)?)));
        let owner = self.unit_owner(unit);
        makers.filter(move |(_, maker)| maker.resource() == owner && maker.document_name() == unit)
    }

    /// Returns the output of a unit, or a list of those of the units for the entries of a list.
    fn output(self, unit: &str, output: &str, place: &str) -> RenderResult<LookupResult> {
        let placeholder = || LookupResult::Placeholder(format!("{}/{unit}.{output}", self.unit_owner(unit)));
        let own = self.unit.and_then(|unit| unit.entry.as_ref());
        let (mut list, mut is_missing) = (Vec::new(), false);
        for (at, maker) in self.makers(unit, output) {
            let made = match self.outputs.get(&at) {
                Some(ProducerState::Outputs(outputs)) => match outputs.get(output) {
                    Some(RenderValue::Secret(_) | RenderValue::Sealed(_)) if self.unknowns == PendingOutputs::Shown => {
                        LookupResult::Placeholder("sensitive".to_owned())
                    }
                    Some(value) => LookupResult::Value(value.clone()),
                    None => LookupResult::Nothing,
                },
                Some(ProducerState::Skipped | ProducerState::Absent) => LookupResult::Nothing,
                None if self.unknowns == PendingOutputs::Missing => LookupResult::Nothing,
                None if maker.outputs.get(output).is_some_and(|output| output.sensitive) => {
                    LookupResult::Placeholder("sensitive".to_owned())
                }
                None => placeholder(),
            };
            let is_listed = maker.entry.as_ref().is_some_and(|entry| own.is_none_or(|own| own.list != entry.list));
            match made {
                made if !is_listed => return Ok(made),
                LookupResult::Placeholder(_) => return Ok(placeholder()),
                made => list.extend(as_json(made, place, || "a value".to_owned())?),
            }
            is_missing = list.is_empty();
        }
        // Without makers, the list has no entries.
        Ok(if is_missing { LookupResult::Nothing } else { Json::from(list).into() })
    }

    fn param(self, name: &str, given: &Template, place: &str) -> RenderResult<LookupResult> {
        match given {
            Template::Sealed(text) if self.unknowns != PendingOutputs::Shown => {
                let place = SealedValue::param_place(&self.facts.key, self.resource, name);
                Ok(LookupResult::Value(RenderValue::Sealed(SealedValue { place, text: text.clone() })))
            }
            given => Self { is_sandbox: true, ..self }.template(given, place),
        }
    }

    pub(super) fn template(self, template: &Template, place: &str) -> RenderResult<LookupResult> {
        match template {
            Template::Literal(value) => Ok(value.clone().into()),
            Template::Secret { .. } | Template::Sealed(_) | Template::Plain(_)
                if self.unknowns == PendingOutputs::Shown =>
            {
                Ok(LookupResult::Placeholder("sensitive".to_owned()))
            }
            Template::Secret { name, key } => Ok(LookupResult::Value(RenderValue::Secret(SecretRef {
                cluster: self.facts.cluster.clone(),
                namespace: self.facts.namespace.clone(),
                name: name.clone(),
                key: key.clone(),
            }))),
            Template::Sealed(_) => Err(sensitive(place, "a value that only a param can have")),
            Template::Plain(_) => Err(sensitive(place, "a value that is not encrypted")),
            Template::Text(text) => self.text(text, place),
            Template::Tree(tree) => {
                let made = self.strict().tree(tree, place)?;
                Ok(made.map_or(LookupResult::Nothing, LookupResult::from))
            }
        }
    }

    pub(super) fn text(self, text: &str, place: &str) -> RenderResult<LookupResult> {
        // Most texts of a manifest are literal.
        if !text.contains('$') {
            capped(place, text.len())?;
            return Ok(Json::from(text).into());
        }
        let parsed = evaluate::text(text, place)?;
        if let Some(expression) = parsed.whole() {
            return self.expression(expression, place);
        }
        let mut joined = String::new();
        for part in &parsed.0 {
            match part {
                TextPart::Literal(text) => joined.push_str(text),
                TextPart::Expression(expression) => joined.push_str(&self.piece(expression, place)?),
            }
            capped(place, joined.len())?;
        }
        Ok(Json::from(joined).into())
    }

    /// Returns the value of an expression as a part of a text. An optional without a value is an empty text.
    pub(super) fn piece(self, expression: &Expression, place: &str) -> RenderResult<String> {
        self.part(expression, place).map(template::joinable)
    }

    /// Returns the value of an expression in a text. An optional without a value is `null`.
    pub(super) fn part(self, expression: &Expression, place: &str) -> RenderResult<Json> {
        let made = Self { nulls: NullPolicy::Omitted, ..self }.expression(expression, place)?;
        let what = || expression.references.first().map(|read| read.source.to_string()).unwrap_or_default();
        Ok(as_json(made, place, what)?.unwrap_or_default())
    }

    /// Returns the value of an expression. A missing required value is an error. Returns [`LookupResult::Nothing`] for
    /// a missing optional one.
    pub(super) fn expression(self, expression: &Expression, place: &str) -> RenderResult<LookupResult> {
        let found = self.evaluated(expression, place)?;
        if !matches!(found, LookupResult::Value(RenderValue::Json(Json::Null))) {
            return Ok(found);
        }
        let is_optional = expression.whole().map(|whole| self.is_optional(&whole.source));
        match (self.nulls, is_optional) {
            (NullPolicy::PassedOn, _) | (NullPolicy::Kept, Some(true) | None) => Ok(found),
            (NullPolicy::Omitted, Some(true)) => Ok(LookupResult::Nothing),
            (NullPolicy::Kept | NullPolicy::Omitted, _) => Err(null(place, expression)),
        }
    }

    /// Returns the value of an expression, which may be `null`.
    fn evaluated(self, expression: &Expression, place: &str) -> RenderResult<LookupResult> {
        // A path below an answer is evaluated.
        let is_answer = |whole: &&ValueReference| matches!(whole.source, ReferenceSource::Root(_));
        if let Some(whole) = expression.whole().filter(|whole| !is_answer(whole)) {
            return match self.read(whole, place)? {
                LookupResult::Nothing if !whole.optional => Err(missing(place, whole)),
                LookupResult::Value(value) => self.guarded(value, whole, place).map(LookupResult::Value),
                found => Ok(found),
            };
        }
        // The tree borrows from the values.
        let mut values: Vec<(&ReferenceSource, RenderValue)> = Vec::new();
        let mut tree = VariableTree::default();
        let mut needed: Option<&ValueReference> = None;
        let mut placeholders: Vec<String> = Vec::new();
        for reference in &expression.references {
            match self.read(reference, place)? {
                LookupResult::Placeholder(name) => placeholders.push(name),
                LookupResult::Nothing => {
                    tree.empty(&reference.source);
                    if !reference.optional && needed.is_none() {
                        needed = Some(reference);
                    }
                }
                LookupResult::Value(value) => {
                    let value = match self.guarded(value, reference, place)? {
                        RenderValue::Secret(secret)
                            if matches!(reference.usage, ReferenceUsage::SecretRef | ReferenceUsage::Presence) =>
                        {
                            RenderValue::Json(json!({"name": secret.name, "key": secret.key}))
                        }
                        RenderValue::Sealed(_) if reference.usage == ReferenceUsage::Presence => {
                            RenderValue::Json(true.into())
                        }
                        RenderValue::Secret(_) | RenderValue::Sealed(_) => {
                            return Err(sensitive(place, reference.source.to_string()));
                        }
                        value => value,
                    };
                    values.push((&reference.source, value));
                }
            }
        }
        if !placeholders.is_empty() {
            placeholders.sort();
            placeholders.dedup();
            return Ok(LookupResult::Placeholder(placeholders.join(", ")));
        }
        for (source, value) in &values {
            match value {
                RenderValue::Json(json) => tree.set(source, convert::from_json(json)),
                RenderValue::Bytes(bytes) => tree.set(source, convert::from_bytes(bytes)),
                RenderValue::Secret(_) | RenderValue::Sealed(_) => {}
            }
        }
        let answers = self.answers.filter(|_| self.is_strict);
        let strict = answers.and_then(|(Answers { response, poll }, _)| {
            expression.strict(&[("response", Some(response)), ("poll", poll)])
        });
        let evaluated = strict.as_ref().map_or(expression, |(strict, _)| strict);
        let made = evaluate::run(evaluated, &tree.variables(), place);
        let cause = match (needed, strict) {
            (Some(needed), _) => missing(place, needed),
            (None, Some((_, what))) => RenderError::Misread { place: place.to_owned(), what },
            (None, None) => return made,
        };
        match made {
            Err(RenderError::Evaluation {
                error: EvaluationError::Evaluation(_) | EvaluationError::MissingValue(_),
                ..
            }) => Err(cause),
            made => made,
        }
    }

    /// Returns the value of a reference. `null` that is read as optional is left out.
    fn read(self, reference: &ValueReference, place: &str) -> RenderResult<LookupResult> {
        match self.lookup(&reference.source, place) {
            Ok(LookupResult::Value(RenderValue::Json(Json::Null))) | Err(RenderError::Null { .. })
                if reference.optional =>
            {
                Ok(LookupResult::Nothing)
            }
            found => found,
        }
    }

    /// Rejects a sensitive value in another cluster than the one that stores it.
    fn guarded(self, value: RenderValue, reference: &ValueReference, place: &str) -> RenderResult<RenderValue> {
        let (RenderValue::Secret(secret), ValueReader::Cluster(user)) = (&value, self.reader) else { return Ok(value) };
        let (what, holder, user) = (&reference.source, cluster_name(secret.cluster.as_deref()), cluster_name(user));
        if holder == user {
            return Ok(value);
        }
        Err(RenderError::Unfit(format!(
            "{place}: {what} is sensitive and lies in cluster {holder}, so it cannot be used in cluster {user}"
        )))
    }

    /// Renders a tree whose strings are templates. Entries without a value are omitted. Returns `None` for a text
    /// without a value.
    pub(super) fn tree(self, tree: &Json, place: &str) -> RenderResult<Option<Json>> {
        escaping::with_values(tree, &|text: &str| {
            let made = self.lenient(Self { nulls: NullPolicy::Kept, ..self }.text(text, place))?;
            as_json(self.disclosed(made, place)?, place, || "a value".to_owned())
        })
    }

    /// Replaces the error for a missing value by [`LookupResult::Nothing`] if the policy permits it.
    pub(super) fn lenient(self, made: RenderResult<LookupResult>) -> RenderResult<LookupResult> {
        match made {
            Err(RenderError::Missing { .. } | RenderError::Null { .. }) if self.lenience == MissingPolicy::LeaveOut => {
                Ok(LookupResult::Nothing)
            }
            other => other,
        }
    }
}

/// The treatment of a missing required value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingPolicy {
    Strict,
    /// The value is omitted, because a failed unit has not produced all values that its undo reads.
    LeaveOut,
}

pub(super) fn mistyped(place: &str, wanted: &str, got: &str) -> RenderError {
    RenderError::Unfit(format!("{place} must be {wanted}, not {got}"))
}

pub(super) fn sensitive(place: &str, what: impl Into<String>) -> RenderError {
    RenderError::Sensitive { place: place.to_owned(), what: what.into() }
}

fn missing(place: &str, reference: &ValueReference) -> RenderError {
    RenderError::Missing { place: place.to_owned(), what: format!("`{}`", reference.source) }
}

/// Returns the error of an expression that gives `null` where a value is needed.
fn null(place: &str, expression: &Expression) -> RenderError {
    let mut names: Vec<String> = expression.references.iter().map(|read| format!("`{}`", read.source)).collect();
    names.sort();
    names.dedup();
    let (what, fix) = match expression.whole().map(|whole| &whole.source) {
        Some(ReferenceSource::Resource { .. }) => (names.concat(), "read it with `.?`"),
        Some(source @ ReferenceSource::Root(_)) => {
            (format!("a value of `{source}`"), "read another one, or wait for it with `until`")
        }
        Some(_) => (names.concat(), "read it with `.?`, or declare it with `optional: true`"),
        None if names.is_empty() => ("the expression".to_owned(), "write a value"),
        None => (format!("the expression over {}", names.join(", ")), "let it return a value"),
    };
    RenderError::Null { place: place.to_owned(), what, fix }
}

pub(super) fn capped(place: &str, bytes: usize) -> RenderResult<()> {
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    Err(RenderError::Unfit(format!("{place} has {bytes} bytes; the limit is {MAX_VALUE_BYTES}")))
}

/// Returns a value as JSON, or `None` for a missing value. `what` names the value in the error for a sensitive one.
pub(super) fn as_json(value: LookupResult, place: &str, what: impl FnOnce() -> String) -> RenderResult<Option<Json>> {
    match value {
        LookupResult::Value(RenderValue::Json(json)) => Ok(Some(json)),
        LookupResult::Value(RenderValue::Bytes(_)) => Err(mistyped(place, "text", "bytes that are not UTF-8")),
        LookupResult::Value(RenderValue::Secret(_) | RenderValue::Sealed(_)) => Err(sensitive(place, what())),
        LookupResult::Nothing => Ok(None),
        LookupResult::Placeholder(name) => Ok(Some(format!("<{name}>").into())),
    }
}

/// Values by path, which become the variables of an expression.
#[derive(Default)]
struct VariableTree<'v> {
    leaf: Option<cel::CelValue<'v>>,
    branches: HashMap<&'v str, VariableTree<'v>>,
}

impl<'v> VariableTree<'v> {
    fn set(&mut self, source: &'v ReferenceSource, value: cel::CelValue<'v>) {
        let path = source.path();
        self.at(&path).leaf = Some(value);
    }

    /// Creates the mapping that would contain a missing value, so that `.?` and `has()` do not fail.
    fn empty(&mut self, source: &'v ReferenceSource) {
        let path = source.path();
        if let Some((_, above)) = path.split_last() {
            self.at(above);
        }
    }

    fn at(&mut self, path: &[&'v str]) -> &mut Self {
        path.iter().fold(self, |branch, step| branch.branches.entry(step).or_default())
    }

    fn value(self) -> cel::CelValue<'v> {
        match self.leaf {
            Some(value) => value,
            None => convert::from_map(self.branches.into_iter().map(|(key, branch)| (key, branch.value()))),
        }
    }

    fn variables(mut self) -> BTreeMap<&'static str, cel::CelValue<'v>> {
        let roots = RootVariable::ALL.map(RootVariable::as_str);
        roots.into_iter().filter_map(|root| Some((root, self.branches.remove(root)?.value()))).collect()
    }
}
