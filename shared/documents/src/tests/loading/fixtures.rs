//! Tests loaded documents: their plans, the positions of their parts, and their expanded text.

use super::super::compiling::fixtures::planned;
use super::{FIXTURES, fixture, folder, meaning, text, vars};
use crate::load::{self, Document, DocumentVars, FolderFiles, NoFiles};
use crate::model::{ActionDoc, LineColumn, PluginDoc, PodDoc, SandboxDoc, UnitDoc};

fn plugin(name: &str) -> PluginDoc {
    let Document::Plugin(plugin) = fixture(name).remove(0) else { panic!("{name} has no plugin") };
    plugin
}

fn sandbox(name: &str) -> SandboxDoc {
    let Document::Sandbox(sandbox) = fixture(name).remove(0) else { panic!("{name} has no sandbox") };
    sandbox
}

fn units(plugin: &PluginDoc, hook: usize) -> &[UnitDoc] {
    plugin.hooks().nth(hook).unwrap().1
}

/// Returns the rest of the line from a position.
fn text_at(text: &str, at: LineColumn) -> &str {
    let line = text.lines().nth(at.line as usize - 1).unwrap();
    &line[line.char_indices().nth(at.column as usize - 1).unwrap().0..]
}

/// The plan contains everything except descriptions.
#[test]
fn documents_compile_to_plans() {
    for (name, of_plugin, of_sandbox) in
        [("signadot", "bucket.yaml", "bucket-sandbox.yaml"), ("ours", "everything.yaml", "wired.yaml")]
    {
        let (plan, _) = planned(&sandbox(of_sandbox), &[plugin(of_plugin)]).unwrap();
        insta::assert_snapshot!(name, serde_json::to_string_pretty(&plan).unwrap());
    }
    assert_eq!(plugin("bucket.yaml").description.as_deref(), Some("A bucket with a random name.\n"));
    let sandbox = sandbox("bucket-sandbox.yaml");
    assert!(text_at(&text("bucket-sandbox.yaml"), sandbox.consumers[1].resource.at).starts_with("logs"));
}

#[test]
fn positions_are_exact() {
    let text = text("bucket.yaml");
    let plugin = plugin("bucket.yaml");
    for (at, expected) in [
        (plugin.name.at, "bucket@v1.2"),
        (plugin.runners[0].image.at, "\"registry"),
        (plugin.runners[0].namespace.as_ref().unwrap().at, "tools"),
        (plugin.pre_start.as_ref().unwrap().name.at, "create:"),
        (plugin.post_stop.as_ref().unwrap().name.at, "delete:"),
        (units(&plugin, 0)[0].name.at, "provision"),
        (units(&plugin, 0)[0].inputs[0].name.at, "region,"),
        (units(&plugin, 0)[0].inputs[0].env.as_ref().unwrap().at, "AWS_REGION}"),
        (units(&plugin, 0)[1].inputs[0].value.at, "bucket-name}"),
        (plugin.outputs[1].name.at, "base-prefix"),
    ] {
        assert!(text_at(&text, at).starts_with(expected), "{at:?} {}", text_at(&text, at));
    }
    let ActionDoc::Pod(PodDoc { script, .. }) = &units(&plugin, 0)[1].action else { panic!() };
    assert!(text_at(&text, script.at).starts_with("#!/bin/sh -eu"), "a block scalar starts with its text");
    let ActionDoc::Pod(PodDoc { script, .. }) = &units(&plugin, 0)[0].action else { panic!() };
    assert!(text_at(&text, script.at).starts_with("\"@{embed"), "embedded text has the position of its directive");
}

#[test]
fn expanded_documents_load_unchanged() {
    for name in FIXTURES.split(' ') {
        for document in fixture(name) {
            let again = load::document(name, document.expanded(), &NoFiles, &DocumentVars::none())
                .unwrap_or_else(|e| panic!("{e}\n{}", document.expanded()));
            assert_eq!(meaning(&document), meaning(&again), "{name}");
            assert_eq!(document.expanded(), again.expanded(), "{name}");
        }
    }
}

#[test]
fn a_digest_depends_on_the_expanded_document() {
    let loaded = |vars: &DocumentVars| {
        load::plugins("bucket.yaml", &text("bucket.yaml"), &FolderFiles::new(folder()), vars).unwrap().remove(0)
    };
    let one = loaded(&vars());
    let digest = load::digest(&one);
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    assert_ne!(digest, load::digest(&loaded(&DocumentVars::parse(["team=a=b", "image=tool:2"]).unwrap())));
    let again = load::plugins("again", &one.expanded, &NoFiles, &DocumentVars::none()).unwrap().remove(0);
    assert_eq!(digest, load::digest(&again));
}

#[test]
fn signadot_keys_in_another_case_are_accepted_with_a_warning() {
    let text =
        text("small.json").replace("\"image\"", "\"Image\"").replace("\"name\": \"small\"", "\"Name\": \"small\"");
    let (documents, warnings) = load::documents("small.json", &text, &NoFiles, &DocumentVars::none()).unwrap();
    assert_eq!(warnings.plain(), "small.json:1:39: warning[key-case]: `Image` is taken as `image`\n");
    let Document::Plugin(plugin) = &documents[0] else { panic!() };
    assert_eq!(plugin.runners[0].image.value, "busybox");
    let again = load::document("again", &plugin.expanded, &NoFiles, &DocumentVars::none()).unwrap();
    assert_eq!(meaning(&documents[0]), meaning(&again));
}

#[test]
fn positions_refer_to_the_file_of_the_author() {
    let text = "# A comment.\n\napiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners:\n  # Another one.\n  sh: {image: '@{team}'}\n\npreStart:\n  first: {pod: {script: '#!/bin/sh'}}\n\n  second:\n    pod:\n      script: |\n        #!/bin/sh\n        true\n    outputs: {o: {file: /o}}\n";
    let load =
        |name: &str, text: &str, vars: &DocumentVars| load::plugins(name, text, &NoFiles, vars).unwrap().remove(0);
    let written = load("plugin.yaml", text, &DocumentVars::parse(["team=a"]).unwrap());
    let stored = load("p@1.0.0", &written.expanded, &DocumentVars::none());
    assert_ne!(written.expanded, text, "the text was expanded");
    assert_eq!(stored.expanded, written.expanded);
    for (one, two) in units(&written, 0).iter().zip(units(&stored, 0)) {
        assert_eq!(stored.source.author(two.name.at), one.name.at, "{}", written.expanded);
        assert_ne!(two.name.at, one.name.at, "the lines differ");
    }
    let warned = crate::compile::check_plugin(&stored).unwrap().0;
    let warned: Vec<String> = warned.iter().map(crate::diagnostic::Diagnostic::plain).collect();
    assert!(
        warned.iter().all(|warned| warned.starts_with("p@1.0.0:13:") || warned.starts_with("p@1.0.0:18:")),
        "{warned:?}"
    );
    let other = text.replace("# A comment.\n", "");
    let other = load("plugin.yaml", &other, &DocumentVars::parse(["team=a"]).unwrap());
    assert_eq!(load::digest(&other), load::digest(&written), "comments do not change the digest");
}
