//! Documents of both formats, from text to a plan and back.

use std::collections::BTreeMap;

use ebb_documents::compile::{self, BoundPlugin};
use ebb_documents::load::{self, Document, DocumentVars, FileError, FileSource, NoFiles};
use ebb_documents::model::{ParamDoc, ParamKind, PluginDoc, SandboxDoc};
use ebb_documents::plan::{Plan, SourceLocation, UnitRef};
use ebb_documents::render::{self, KnownOutputs, RenderError, TargetFacts, UnitContext};
use semver::Version;

use crate::{InputParts, placed};

/// Runs documents. The first part is their text; the others are the embedded files `f0`, `f1` and so on.
pub(crate) fn documents(parts: &InputParts<'_>) {
    let files = parts.from(1);
    let Some(documents) = loaded(parts.get(0), &NumberedFiles(files)) else { return };
    let plugins: Vec<&PluginDoc> = documents.iter().filter_map(as_plugin).collect();
    for document in &documents {
        stored(document, &plugins);
    }
}

/// Runs embedded files. Each part is embedded as YAML for a list, as text for a script and a pod template, and as
/// bytes.
pub(crate) fn embeds(parts: &InputParts<'_>) {
    let template = "name: p\nspec:\n  runner: {image: a, podTemplateOverlay: \"@{embed: f0}\"}\n  create:\n  - {name: s, script: \"@{embed: f0}\"}\n";
    let tree =
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {sh: {image: a}}\npreStart: \"@{embed[yaml]: f0}\"\n";
    let bytes = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {r: {plugin: p, params: {a: \"@{embed[binary]: f0}\", b: \"x@{embed: f0}\"}}}\n";
    for text in [template, tree, bytes] {
        for document in loaded(text, &NumberedFiles(&parts.0)).unwrap_or_default() {
            stored(&document, &[]);
        }
    }
    let block: String = parts.get(0).split('\n').map(|line| format!("      {line}\n")).collect();
    let written = format!(
        "name: p\nspec:\n  runner:\n    image: a\n    podTemplateOverlay: |\n{block}  create:\n  - {{name: s, script: \"#!/bin/sh\"}}\n"
    );
    loaded(&written, &NoFiles);
}

struct NumberedFiles<'a>(&'a [&'a str]);

impl FileSource for NumberedFiles<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let number = path.strip_prefix('f').and_then(|number| number.parse::<usize>().ok());
        let file = number.and_then(|number| self.0.get(number));
        file.map(|text| text.as_bytes().to_vec()).ok_or_else(|| FileError::Missing(path.to_owned()))
    }
}

fn as_plugin(document: &Document) -> Option<&PluginDoc> {
    match document {
        Document::Plugin(plugin) => Some(plugin),
        _ => None,
    }
}

fn loaded(text: &str, files: &dyn FileSource) -> Option<Vec<Document>> {
    let vars = DocumentVars::parse(["dev=jane", "team=a=b", "tricky=@{dev} ${x}"]).expect("they are well written");
    let (documents, warnings) = placed::accepted(load::documents("f.yaml", text, files, &vars))?;
    warnings.iter().for_each(placed::one);
    Some(documents)
}

/// Checks that a document can be stored: its expanded text loads to the same document and compiles to the same plan.
fn stored(document: &Document, plugins: &[&PluginDoc]) {
    let text = document.expanded();
    let again = load::document("stored.yaml", text, &NoFiles, &DocumentVars::none());
    let again = again.unwrap_or_else(|errors| panic!("what was written does not load: {errors}\n{text}"));
    assert_eq!(again.expanded(), text, "it is written in another way the second time");
    match (document, &again) {
        (Document::Plugin(one), Document::Plugin(two)) => {
            assert_eq!(load::digest(one), load::digest(two));
            match (compile::check_plugin(one), compile::check_plugin(two)) {
                (Ok((warnings, _)), Ok(_)) => warnings.iter().for_each(placed::one),
                (Err(errors), Err(_)) => return placed::errors(&errors),
                (one, two) => panic!("stored, it is judged otherwise: {one:?} {two:?}\n{text}"),
            }
            let sandbox = sandbox_of(one);
            let Some(sandbox) = load::sandbox("s.yaml", &sandbox, &NoFiles, &DocumentVars::none()).ok() else {
                panic!("a sandbox of it does not load:\n{sandbox}");
            };
            assert_eq!(plan(&sandbox, &[one]), plan(&sandbox, &[two]), "stored, it compiles to another plan");
        }
        (Document::Sandbox(one), Document::Sandbox(two)) => {
            assert_eq!(plan(one, plugins), plan(two, plugins), "stored, it compiles to another plan");
        }
        (Document::RouteGroup(_), Document::RouteGroup(_))
        | (Document::Connection(_), Document::Connection(_))
        | (Document::Subscription(_), Document::Subscription(_)) => {}
        (Document::Source(one), Document::Source(two)) => {
            let is_valid = |source| compile::event_source(source).is_ok();
            assert_eq!(is_valid(one), is_valid(two), "stored, it is judged otherwise");
        }
        _ => panic!("stored, it is of another kind:\n{text}"),
    }
}

/// Returns a sandbox with one resource of this plugin and a value for each param.
fn sandbox_of(plugin: &PluginDoc) -> String {
    let params: serde_json::Map<String, serde_json::Value> =
        plugin.params.iter().map(|param| (param.name.value.clone(), value_for(param))).collect();
    serde_json::json!({
        "apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": "s",
        "resources": {"r": {"plugin": plugin.name.value, "params": params}},
    })
    .to_string()
}

/// Returns a value of a param's type that meets its simple constraints.
fn value_for(param: &ParamDoc) -> serde_json::Value {
    if let Some(value) = param.allowed().next() {
        return value.clone();
    }
    let least = param.minimum.as_ref().map(|bound| bound.value);
    let length = param.min_length.as_ref().map_or(1, |bound| bound.value as usize);
    match param.kind {
        ParamKind::String => "x".repeat(length.min(64)).into(),
        ParamKind::Integer => (least.unwrap_or(0.0) as i64).into(),
        ParamKind::Number => least.unwrap_or(0.5).into(),
        ParamKind::Boolean => true.into(),
        ParamKind::Object => serde_json::json!({"a": 1}),
        ParamKind::Array => serde_json::json!(["a"]),
    }
}

/// Compiles a plan twice and checks that both are equal. Returns it without line numbers; `None` if it is rejected.
fn plan(sandbox: &SandboxDoc, plugins: &[&PluginDoc]) -> Option<String> {
    let none = Version::new(0, 0, 0);
    let mut bound = BTreeMap::new();
    for resource in sandbox.resources.iter().filter(|resource| resource.collection.is_none()) {
        let fits = |plugin: &&&PluginDoc| plugin.name.value == resource.plugin.value;
        let plugin = plugins.iter().find(fits).or(plugins.first())?;
        let version = plugin.version.as_ref().unwrap_or(&none);
        bound.insert(resource.name.value.clone(), BoundPlugin { plugin, version, digest: "sha256:00" });
    }
    let (made, warnings, _) = placed::accepted(compile::plan(sandbox, &bound))?;
    warnings.iter().for_each(placed::one);
    let json = made.to_json();
    let (again, ..) = compile::plan(sandbox, &bound).expect("it compiled a moment ago");
    assert_eq!(again.to_json(), json, "compiled twice, it gives two plans");
    let read = Plan::from_json(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(read.to_json(), json, "stored, the plan is another one");
    sent(&read);
    let mut placeless = read;
    for unit in placeless.hooks.iter_mut().flat_map(|hook| &mut hook.units) {
        unit.source = SourceLocation::default();
    }
    Some(placeless.to_json())
}

/// Checks that each unit of a plan renders, or has an error with a reason.
fn sent(plan: &Plan) {
    let facts = TargetFacts { kind: "sandbox".to_owned(), name: "s".to_owned(), ..TargetFacts::default() };
    let known = KnownOutputs::new();
    for hook in &plan.hooks {
        assert_eq!(plan.hook_plan(hook.hook), Some(hook), "a hook is listed twice");
        hook.graph().unwrap_or_else(|error| panic!("a plan without a graph: {error}"));
        for number in 0..u32::try_from(hook.units.len()).unwrap_or(u32::MAX) {
            let at = UnitRef { hook: hook.hook, unit: number };
            let context = UnitContext { plan, at, facts: &facts, known: &known };
            for made in [render::preview(context), render::unit(context, None)] {
                if let Err(error) = made {
                    assert!(!matches!(error, RenderError::Plan { .. }) && !error.to_string().is_empty(), "{error}");
                }
            }
        }
    }
    let _ = render::env(plan, &facts, &known);
    let _ = render::resource_outputs(plan, &facts, &known, None);
}
