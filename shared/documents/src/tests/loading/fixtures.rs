//! Documents that load: what they become, where their parts stand, and that writing and reading is the identity.

use super::{FIXTURES, fixture, folder, meaning, text, vars};
use crate::load::{self, Document, DocumentVars, FolderFiles, NoFiles};
use crate::model::{
    ActionDoc, Dialect, DurationMs, InputDoc, LineColumn, Named, ObjectDoc, OutputFromDoc, ParamKind, ParamValue,
    PluginDoc, PodDoc, SandboxDoc, TemplateTree, UnitDoc,
};
use crate::plan::HookName;

fn plugin(name: &str) -> PluginDoc {
    match fixture(name).remove(0) {
        Document::Plugin(plugin) => plugin,
        other => panic!("{other:?}"),
    }
}

fn sandbox(name: &str) -> SandboxDoc {
    match fixture(name).remove(0) {
        Document::Sandbox(sandbox) => sandbox,
        other => panic!("{other:?}"),
    }
}

fn units(plugin: &PluginDoc, hook: usize) -> &[UnitDoc] {
    plugin.hooks().nth(hook).unwrap().1
}

fn template(input: &InputDoc) -> &str {
    match &input.value.value {
        TemplateTree::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Returns the text from a place on.
fn standing(text: &str, at: LineColumn) -> &str {
    let line = text.lines().nth(at.line as usize - 1).unwrap();
    &line[line.char_indices().nth(at.column as usize - 1).unwrap().0..]
}

#[test]
fn a_signadot_plugin_becomes_our_model() {
    let plugin = plugin("bucket.yaml");
    assert_eq!((plugin.dialect, plugin.name.value.as_str()), (Dialect::Signadot, "bucket"));
    assert_eq!(plugin.version.as_ref().unwrap().to_string(), "1.2.0");
    assert_eq!(plugin.description.as_deref(), Some("A bucket with a random name.\n"));
    let params: Vec<_> = plugin.params.iter().map(|p| (p.name.value.as_str(), p.kind, p.is_optional())).collect();
    assert_eq!(params, [("region", ParamKind::String, true), ("storage-class", ParamKind::String, true)]);
    let Named { name, inner: runner } = &plugin.runners[0];
    assert_eq!((name.value.as_str(), runner.image.value.as_str()), ("default", "registry.example.org/tool:1"));
    assert_eq!(runner.pod_template.as_ref().unwrap().value, text("plugin/pod.yaml"));
    let hooks: Vec<_> = plugin.hooks().map(|(hook, units)| (units.name.value.as_str(), hook, units.len())).collect();
    assert_eq!(hooks, [("preStart", HookName::PreStart, 2), ("postStop", HookName::PostStop, 1)]);

    let [provision, seed] = units(&plugin, 0) else { panic!() };
    assert_eq!(template(&provision.inputs[0]), r#"${params[?"region"]}"#);
    assert!(provision.inputs[0].optional && provision.inputs[0].env.as_ref().unwrap().value == "AWS_REGION");
    assert_eq!((&provision.inputs[1].env, &provision.inputs[1].path), (&None, &None));
    let ActionDoc::Pod(PodDoc { runner: None, script }) = &provision.action else { panic!() };
    assert_eq!(script.value, text("plugin/provision.sh"));
    let OutputFromDoc::File(file) = &provision.outputs[0].from else { panic!() };
    assert_eq!(file.value, "/tmp/bucket-name");
    assert!(standing(&text("bucket.yaml"), file.at).starts_with("/tmp/bucket-name}"));
    assert_eq!(template(&seed.inputs[0]), r#"${units["provision"].outputs["bucket-name"]}"#);
    assert_eq!(seed.inputs[0].env.as_ref().unwrap().value, "BUCKET");
    assert_eq!(seed.inputs[0].path.as_ref().unwrap().value, "/in/bucket");
    assert!(!seed.inputs[0].optional);
    let ActionDoc::Pod(PodDoc { script, .. }) = &seed.action else { panic!() };
    assert!(script.value.contains("for a=b\""), "{}", script.value);

    let outputs: Vec<_> = plugin.outputs.iter().map(|output| output.name.value.as_str()).collect();
    assert_eq!(outputs, ["provision.bucket-name", "seed.base-prefix"]);
    let ActionDoc::Pod(PodDoc { script, .. }) = &units(&plugin, 1)[0].action else { panic!() };
    assert_eq!(script.value, text("plugin/deprovision.sh"), "bytes untouched");
}

#[test]
fn places_are_exact() {
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
        assert!(standing(&text, at).starts_with(expected), "{at:?} {}", standing(&text, at));
    }
    let ActionDoc::Pod(PodDoc { script, .. }) = &units(&plugin, 0)[1].action else { panic!() };
    assert!(standing(&text, script.at).starts_with("#!/bin/sh -eu"), "a block begins with its text");
    let ActionDoc::Pod(PodDoc { script, .. }) = &units(&plugin, 0)[0].action else { panic!() };
    assert!(standing(&text, script.at).starts_with("\"@{embed"), "embedded text stands at its directive");
}

#[test]
fn a_signadot_sandbox_becomes_our_model() {
    let sandbox = sandbox("bucket-sandbox.yaml");
    assert_eq!((sandbox.name.value.as_str(), sandbox.cluster.as_deref()), ("jane-feature", Some("staging")));
    assert_eq!(sandbox.labels["team"], "a=b");
    assert_eq!(sandbox.ttl, Some(DurationMs(2 * 24 * 60 * 60 * 1000)));
    let resources: Vec<_> = sandbox
        .resources
        .iter()
        .map(|r| (r.name.value.as_str(), r.plugin.value.as_str(), r.version.as_ref().map(ToString::to_string)))
        .collect();
    assert_eq!(
        resources,
        [("assets", "bucket", Some("1.2.0".to_owned())), ("logs", "bucket", None), ("more", "bucket", None)]
    );
    let given: Vec<_> =
        sandbox.resources[0].params.iter().map(|given| (given.name.value.as_str(), &given.value)).collect();
    let literal = |text: &str| ParamValue::Tree(TemplateTree::Text(text.to_owned()));
    assert_eq!(given, [("region", &literal("eu-west-1")), ("storage-class", &literal("U1RBTkRBUkQ="))]);
    let consumers: Vec<_> =
        sandbox.consumers.iter().map(|c| (c.resource.value.as_str(), c.output.value.as_str())).collect();
    assert_eq!(consumers, [("assets", "provision.bucket-name"), ("logs", "provision.bucket-name")]);
    assert!(standing(&text("bucket-sandbox.yaml"), sandbox.consumers[1].resource.at).starts_with("logs"));
}

#[test]
fn our_plugin_becomes_the_model() {
    let plugin = plugin("everything.yaml");
    assert_eq!(plugin.dialect, Dialect::Ebb);
    let kinds: Vec<_> =
        plugin.params.iter().map(|p| (p.name.value.as_str(), p.kind, p.is_optional(), p.sensitive)).collect();
    assert_eq!(
        kinds,
        [
            ("name", ParamKind::String, false, false),
            ("count", ParamKind::Integer, false, false),
            ("ratio", ParamKind::Number, false, false),
            ("fast", ParamKind::Boolean, false, false),
            ("tags", ParamKind::Object, false, false),
            ("zones", ParamKind::Array, true, false),
            ("token", ParamKind::String, false, true),
        ]
    );
    let hooks: Vec<_> = plugin.hooks().map(|(hook, units)| (hook, units.len())).collect();
    assert_eq!(
        hooks,
        [(HookName::PreStart, 1), (HookName::PostStart, 1), (HookName::PreStop, 1), (HookName::PostStop, 2)]
    );
    let make = &units(&plugin, 0)[0];
    assert_eq!(make.timeout, Some(DurationMs(90_000)), "from the defaults");
    let retry = make.retry.as_ref().unwrap();
    let bounds = [&retry.backoff, &retry.max_backoff].map(|bound| bound.as_ref().unwrap().value.0);
    assert_eq!((retry.attempts.as_ref().unwrap().value, bounds), (7, [500, 60_000]));
    let scalars: Vec<_> = make.inputs.iter().map(|i| &i.value.value).take(3).collect();
    assert_eq!(
        scalars,
        [
            &TemplateTree::Text("${params.count}".into()),
            &TemplateTree::Scalar(5.into()),
            &TemplateTree::Scalar(false.into())
        ]
    );
    let tell = &units(&plugin, 1)[0];
    assert_eq!(tell.timeout, Some(DurationMs(7_200_000)));
    let on: Vec<_> = tell.retry.as_ref().unwrap().on.iter().map(|class| class.value.0.as_str()).collect();
    assert_eq!(on, ["503", "connect"]);
    let ActionDoc::Object(ObjectDoc { manifest, .. }) = &units(&plugin, 2)[0].action else { panic!() };
    let TemplateTree::Map(manifest) = &manifest.value else { panic!() };
    assert_eq!(manifest[0].name.value, "apiVersion");
    let unmake = &units(&plugin, 3)[1];
    assert_eq!(unmake.undoes.as_ref().unwrap().0[0].value, "make");
    assert_eq!(unmake.after.0[0].value, "untell");
}

#[test]
fn our_sandboxes_become_the_model() {
    let documents = fixture("wired.yaml");
    assert_eq!(documents.len(), 2);
    let Document::Sandbox(sandbox) = &documents[0] else { panic!() };
    assert_eq!(sandbox.namespace.as_deref(), Some("shop"));
    assert_eq!(sandbox.ttl, Some(DurationMs(86_400_000)));
    let given: Vec<_> =
        sandbox.resources[0].params.iter().map(|given| (given.name.value.as_str(), &given.value)).collect();
    assert_eq!(given[1], ("token", &ParamValue::Secret { name: "tokens".into(), key: "pg".into() }));
    assert_eq!(given[2], ("fast", &ParamValue::Tree(TemplateTree::Scalar(false.into()))));
    let Document::Sandbox(bare) = &documents[1] else { panic!() };
    assert_eq!((bare.name.value.as_str(), bare.name.at.line), ("bare", 19));
    assert!(bare.resources.is_empty());
}

#[test]
fn the_examples_of_the_format_load() {
    let plugin = plugin("tenant-db.yaml");
    assert_eq!((plugin.name.value.as_str(), plugin.params.len(), plugin.hooks().count()), ("tenant-db", 3, 3));
    assert_eq!(units(&plugin, 0)[0].retry.as_ref().unwrap().attempts.as_ref().unwrap().value, 3);
    let sandbox = sandbox("pr-1234.yaml");
    assert_eq!((sandbox.resources.len(), sandbox.env.len()), (2, 1));
}

#[test]
fn what_is_written_reads_as_the_same() {
    for name in FIXTURES {
        for document in fixture(name) {
            let again = load::document(name, document.expanded(), &NoFiles, &DocumentVars::none())
                .unwrap_or_else(|e| panic!("{e}\n{}", document.expanded()));
            assert_eq!(meaning(&document), meaning(&again), "{name}");
            assert_eq!(document.expanded(), again.expanded(), "{name}");
        }
    }
}

#[test]
fn a_digest_is_of_what_was_expanded() {
    let loaded = |vars: &DocumentVars| {
        let text = text("bucket.yaml");
        load::plugins("bucket.yaml", &text, &FolderFiles::new(folder()), vars).unwrap().remove(0)
    };
    let one = loaded(&vars());
    let digest = load::digest(&one);
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    let other = loaded(&DocumentVars::parse(["team=a=b", "image=tool:2"]).unwrap());
    assert_ne!(digest, load::digest(&other));
    let again = load::plugins("again", &one.expanded, &NoFiles, &DocumentVars::none()).unwrap().remove(0);
    assert_eq!(digest, load::digest(&again));
}

#[test]
fn keys_in_another_case_are_taken_from_signadot_with_a_warning() {
    let text =
        text("small.json").replace("\"image\"", "\"Image\"").replace("\"name\": \"small\"", "\"Name\": \"small\"");
    let loaded = load::documents("small.json", &text, &NoFiles, &DocumentVars::none()).unwrap();
    assert_eq!(loaded.warnings.plain(), "small.json:1:39: warning[key-case]: `Image` is taken as `image`\n");
    let Document::Plugin(plugin) = &loaded.documents[0] else { panic!() };
    assert_eq!(plugin.runners[0].image.value, "busybox");
    let again = load::document("again", &plugin.expanded, &NoFiles, &DocumentVars::none()).unwrap();
    assert_eq!(meaning(&loaded.documents[0]), meaning(&again));
}

#[test]
fn documents_may_be_as_large_as_the_limit_of_units() {
    let mut text =
        String::from("apiVersion: ebb.dev/v1\nkind: Plugin\nname: large\nrunners: {default: {image: a}}\npreStart:\n");
    for n in 0..10_001 {
        let before = n - 1;
        text.push_str(&format!(
            "  u{n}:\n    pod: {{script: \"#!/bin/sh\\ntrue\"}}\n    inputs: {{a: \"${{units.u{before}.outputs.o}}\"}}\n    outputs: {{o: {{file: /tmp/o}}}}\n"
        ));
    }
    let plugin = load::plugins("large", &text, &NoFiles, &DocumentVars::none()).unwrap().remove(0);
    assert_eq!(units(&plugin, 0).len(), 10_001);
}

#[test]
fn places_are_those_of_the_authors_file() {
    let text = "# A comment.\n\napiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners:\n  # Another one.\n  sh: {image: '@{team}'}\n\npreStart:\n  first: {pod: {script: '#!/bin/sh'}}\n\n  second:\n    pod:\n      script: |\n        #!/bin/sh\n        true\n    outputs: {o: {file: /o}}\n";
    let load =
        |name: &str, text: &str, vars: &DocumentVars| load::plugins(name, text, &NoFiles, vars).unwrap().remove(0);
    let written = load("plugin.yaml", text, &DocumentVars::parse(["team=a"]).unwrap());
    let stored = load("p@1.0.0", &written.expanded, &DocumentVars::none());
    assert_ne!(written.expanded, text, "it was written again");
    assert_eq!(stored.expanded, written.expanded);
    for (one, two) in units(&written, 0).iter().zip(units(&stored, 0)) {
        assert_eq!(stored.source.author(two.name.at), one.name.at, "{}", written.expanded);
        assert_ne!(two.name.at, one.name.at, "the lines are others");
    }
    let warned = crate::compile::check_plugin(&stored).unwrap();
    let warned: Vec<String> = warned.iter().map(crate::diagnostic::Diagnostic::plain).collect();
    assert!(
        warned.iter().all(|warned| warned.starts_with("p@1.0.0:13:") || warned.starts_with("p@1.0.0:18:")),
        "{warned:?}"
    );
    let other = text.replace("# A comment.\n", "");
    let other = load("plugin.yaml", &other, &DocumentVars::parse(["team=a"]).unwrap());
    assert_eq!(load::digest(&other), load::digest(&written), "comments do not change what is published");
}
