//! Converts `bind` of a target to object units, which run before the target is ready.

use std::collections::HashMap;

use crate::load::reader::DocumentReader;
use crate::model::{
    ActionDoc, At, BindDoc, BoundObjectDoc, Entries, HookDoc, HookOwner, LineColumn, Named, ObjectDoc, PluginDoc,
    SandboxDoc, TemplateTree, UnitDoc, UnitSpec,
};

/// Maximum characters of a key in `data` of a Secret or a ConfigMap.
const MAX_KEY: usize = 253;

/// Moves the entries of `bind` to the `bound` of a target, if it has any.
pub(super) fn take(reader: &DocumentReader<'_>, target: &mut SandboxDoc) {
    let entries = std::mem::take(&mut target.bind);
    let Some(at) = entries.first().map(|first| first.at) else { return };
    let mut seen: HashMap<[String; 3], LineColumn> = HashMap::new();
    let units = entries.into_iter().enumerate().map(|(number, entry)| {
        let first_at = entry.at;
        let (kind, object) = match &entry.value.object {
            BoundObjectDoc::Secret(object) => ("Secret", object),
            BoundObjectDoc::ConfigMap(object) => ("ConfigMap", object),
        };
        let key = [kind, object.namespace.value.as_str(), object.name.value.as_str()].map(str::to_owned);
        if let Some(first) = seen.insert(key, first_at) {
            let message = format!("the {kind} `{}/{}` is bound twice", object.namespace.value, object.name.value);
            let wrong = reader.wrong("duplicate", first_at, message).related(first, "the first one");
            reader.note(wrong.help("put all values into one `data`"));
        }
        unit(reader, kind, number + 1, entry)
    });
    let units = Entries(units.collect());
    let name = |text: &str| At { value: text.to_owned(), at };
    target.bound = Some(Box::new(PluginDoc {
        name: name(HookOwner::BIND),
        owner: HookOwner::Target,
        pre_start: Some(HookDoc { name: name("preStart"), inner: units }),
        source: reader.source.clone(),
        ..PluginDoc::default()
    }));
}

/// Returns the unit that applies a bound object.
fn unit(reader: &DocumentReader<'_>, kind: &str, number: usize, entry: At<BindDoc>) -> UnitDoc {
    let At { value: BindDoc { object: BoundObjectDoc::Secret(object) | BoundObjectDoc::ConfigMap(object), data }, at } =
        entry;
    if data.is_empty() {
        let wrong = reader.wrong("missing-key", at, "`data` has no value");
        reader.note(wrong.help("add one: `data: {DATABASE_URL: \"${resources.db.outputs.dsn}\"}`"));
    }
    for Named { name, .. } in &data {
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.value.is_empty() || name.value.len() > MAX_KEY || !name.value.chars().all(is_key) {
            let message = format!("`{}` is not a key of a {kind}", name.value);
            let help = format!("letters, digits, `-`, `_` and `.`, at most {MAX_KEY}");
            reader.note(reader.wrong("name", name.at, message).help(help));
        }
    }
    let text = |value: At<String>| At { value: TemplateTree::Text(value.value), at: value.at };
    let literal = |value: &str| text(At { value: value.to_owned(), at });
    let field = |name: &str, inner: At<TemplateTree>| Named { name: At { value: name.to_owned(), at }, inner };
    let map = |fields: Vec<Named<At<TemplateTree>>>| At { value: TemplateTree::Map(Entries(fields)), at };
    let metadata = map(vec![field("name", text(object.name)), field("namespace", text(object.namespace))]);
    let manifest =
        map(vec![field("apiVersion", literal("v1")), field("kind", literal(kind)), field("metadata", metadata)]);
    let data = data.0.into_iter().map(|Named { name, inner }| Named { name, inner: text(inner) });
    let data = Some(map(data.collect()));
    let action = ActionDoc::Object(ObjectDoc { manifest, ready: None, fail: None, data });
    let name = At { value: format!("{}-{number}", kind.to_ascii_lowercase()), at };
    Named { name, inner: UnitSpec { action, ..UnitSpec::default() } }
}
