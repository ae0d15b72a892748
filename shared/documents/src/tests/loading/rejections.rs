//! Every rejection has a golden message.

use super::folder;
use crate::compile;
use crate::diagnostic::DiagnosticStyle;
use crate::load::{self, Document, DocumentVars, FolderFiles};

/// Loads and checks a document that must be refused, and compares the message with the golden one.
fn refused(name: &str, text: &str) {
    let vars = DocumentVars::parse(["team=a", "tfstate-bucket=b"]).unwrap();
    let loaded = load::documents("plugin.yaml", text, &FolderFiles::new(folder()), &vars);
    let checked = loaded.and_then(|loaded| match loaded.documents.as_slice() {
        [Document::Plugin(plugin)] => compile::check_plugin(plugin),
        _ => Ok(Vec::new()),
    });
    let Err(wrong) = checked else { panic!("{name} is accepted") };
    for diagnostic in &wrong {
        let at = diagnostic.at.unwrap_or_default();
        assert!(diagnostic.at.is_none() || at.line > 0 && at.column > 0, "{diagnostic:?}");
    }
    let shown = wrong.drawn(DiagnosticStyle::Plain);
    insta::with_settings!({ snapshot_suffix => "", omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "../../../tests/loading/rejections" }, {
        insta::assert_snapshot!(name, shown);
    });
}

/// A Signadot plugin with one step whose text is given, indented by two.
fn step(step: &str) -> String {
    format!("name: p\nspec:\n  runner: {{image: busybox}}\n  create:\n  - {}\n", step.replace('\n', "\n    "))
}

/// One of our plugins with one unit `make` whose text is given.
fn unit(unit: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {{default: {{image: busybox}}}}\npreStart:\n  make:\n    {}\n",
        unit.replace('\n', "\n    ")
    )
}

const POD: &str = "pod: {script: \"#!/bin/sh\\ntrue\"}";

#[test]
fn syntax() {
    refused("yaml_unclosed", "name: p\nspec: {runner: {image: a}\n");
    refused("yaml_tab", "name: p\nspec:\n\trunner: {image: a}\n");
    refused(
        "yaml_directive_not_quoted",
        "name: p\nspec:\n  runner: {image: a}\n  create:\n  - name: a\n    script: @{embed: a.sh}\n",
    );
    refused("yaml_unknown_alias", "name: p\nspec: *other\n");
    refused("yaml_key_is_no_string", "name: p\nspec:\n  [a]: b\n");
    refused("empty", "# nothing\n---\n\n");
    refused("duplicate_key", "name: p\nspec:\n  runner: {image: a}\n  create: []\n  runner: {image: b}\n");
    refused("too_deep", &format!("name: p\nspec: {}{}\n", "[".repeat(80), "]".repeat(80)));
    let block: String = (0..80).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    refused("too_deep_block", &block);
    let bomb: String =
        (1..9).map(|n| format!("x{n}: &x{n} [{}]\n", vec![format!("*x{}", n - 1); 9].join(", "))).collect();
    refused("alias_bomb", &format!("x0: &x0 [a, a, a]\n{bomb}"));
    refused("too_large", &format!("name: p\nspec: \"{}\"\n", "x".repeat(4 << 20)));
}

#[test]
fn kinds() {
    refused("no_mapping", "- a\n- b\n");
    refused("unknown_document", "name: p\nspec: {colour: red}\n");
    refused("neither_name_nor_spec", "title: p\n");
    refused("missing_name", "spec:\n  runner: {image: a}\n");
    refused("name_is_a_number", "name: 5\nspec:\n  runner: {image: a}\n");
    refused("unknown_kind", "apiVersion: ebb.dev/v1\nkind: Plugins\nname: p\n");
    refused("unknown_api_version", "apiVersion: ebb.dev/v2\nkind: Plugin\nname: p\n");
    refused("no_api_version", "kind: Plugin\nname: p\n");
    refused(
        "old_signadot_kind",
        "apiVersion: signadot.com/v1alpha1\nkind: ResourcePlugin\nmetadata:\n  name: mariadb\nspec:\n  image: x\n  provisioner: /bin/provision\n",
    );
    refused("old_signadot_sandbox", "apiVersion: signadot.com/v1\nkind: Sandbox\nmetadata: {name: s}\n");
    refused("old_signadot_fields", "name: mariadb\nspec:\n  image: x\n  provisioner: /bin/provision\n");
}

#[test]
fn templates() {
    refused("embed_outside", &step("name: a\nscript: \"@{embed: ../secret.sh}\""));
    refused("embed_missing", &step("name: a\nscript: \"@{embed: nowhere.sh}\""));
    refused("embed_directory", &step("name: a\nscript: \"@{embed: plugin}\""));
    refused("missing_variables", &step("name: a\nscript: |\n  #!/bin/sh\n  echo @{team} @{tema}\n  echo é @{other}"));
    refused("invalid_encoding_in_text", &step("name: a\nscript: \"#!/bin/sh @{embed[yaml]: pod.yaml}\""));
    refused("unknown_encoding", &step("name: a\nscript: \"@{embed[json]: pod.yaml}\""));
    refused("unsupported_operation", &step("name: a\nscript: \"@{include: pod.yaml}\""));
    refused("invalid_variable", &step("name: a\nscript: \"@{1st}\""));
    refused("embedded_no_yaml", &unit("object: {manifest: \"@{embed[yaml]: broken.yaml}\"}"));
    refused("embedded_too_deep", &unit("object: {manifest: \"@{embed[yaml]: deep.yaml}\"}"));
    refused("embedded_yaml_is_no_script", &step("name: a\nscript: \"@{embed[yaml]: pod.yaml}\""));
}

#[test]
fn signadot_plugins() {
    refused(
        "unknown_keys",
        "name: p\nspec:\n  descripton: typo\n  runner: {image: a, pullPolicy: Always}\n  create:\n  - name: a\n    inputs:\n    - {name: b, valueFromSandbox: true, as: {file: /in/b}}\n    script: \"#!/bin/sh\"\n    timeout: 5m\n",
    );
    refused("no_runner", "name: p\nspec:\n  create: []\n");
    refused(
        "two_sources",
        &step(
            "name: a\nscript: \"#!/bin/sh\"\ninputs:\n- name: b\n  valueFromSandbox: true\n  valueFromStep: {name: c, output: d}",
        ),
    );
    refused("no_source", &step("name: a\nscript: \"#!/bin/sh\"\ninputs:\n- {name: b, valueFromSandbox: false}"));
    refused(
        "boolean_is_a_string",
        &step("name: a\nscript: \"#!/bin/sh\"\ninputs:\n- {name: b, valueFromSandbox: \"yes\"}"),
    );
    refused("no_interpreter", &step("name: a\nscript: |\n  echo hello"));
    refused("script_with_cr_lf", &step("name: a\nscript: \"#!/bin/sh\\r\\ntrue\\r\\n\""));
    refused("script_missing", &step("name: a"));
    refused("script_too_large", &step(&format!("name: a\nscript: \"#!/bin/sh\\n{}\"", "x".repeat(256 << 10))));
    refused(
        "step_twice",
        "name: p\nspec:\n  runner: {image: a}\n  create:\n  - {name: a, script: \"#!/bin/sh\"}\n  delete:\n  - {name: a, script: \"#!/bin/sh\"}\n",
    );
    refused(
        "bad_names",
        &step(
            "name: 1st_step\nscript: \"#!/bin/sh\"\noutputs:\n- {name: a-name-that-is-longer-than-thirty, valueFromPath: /tmp/x}",
        ),
    );
    refused("bad_path", &step("name: a\nscript: \"#!/bin/sh\"\noutputs: [{name: b, valueFromPath: tmp/x}]"));
    refused(
        "input_twice",
        &step(
            "name: a\nscript: \"#!/bin/sh\"\ninputs:\n- {name: b, valueFromSandbox: true}\n- {name: b, valueFromSandbox: true}",
        ),
    );
    refused(
        "bad_environment_name",
        &step(
            "name: a\nscript: \"#!/bin/sh\"\ninputs:\n- {name: b, valueFromSandbox: true, as: {env: MY-VAR, path: relative}}",
        ),
    );
    for (name, version) in
        [("bad_version", "p@1.x"), ("latest_is_no_version", "p@latest"), ("bad_plugin_name", "my_plugin@1.0.0")]
    {
        refused(name, &format!("name: {version}\nspec:\n  runner: {{image: a}}\n"));
    }
}

#[test]
fn pod_templates() {
    let overlay = |text: &str| {
        format!(
            "name: p\nspec:\n  runner:\n    image: a\n    namespace: n\n    podTemplateOverlay: |\n      {}\n",
            text.replace('\n', "\n      ")
        )
    };
    refused(
        "reserved_names",
        &overlay(
            "spec:\n  initContainers: [{name: signadot-execunit-input-manager}]\n  containers:\n  - name: main\n  - name: signadot-execunit-output-manager\n  - name: ebb-entrypoint\n  volumes:\n  - name: signadot-execunit-io\n    emptyDir: {}",
        ),
    );
    refused("restart_policy", &overlay("spec:\n  restartPolicy: Always"));
    refused("pod_name", &overlay("metadata:\n  name: mine"));
    refused(
        "runner_conflicts",
        &overlay("metadata: {namespace: other}\nspec:\n  containers:\n  - name: main\n    image: b"),
    );
    refused("pod_template_keys", &overlay("sepc: {}\n"));
    refused("pod_template_after_blank_line", &overlay("\nspec:\n  restartPolicy: Always"));
    refused("pod_template_no_yaml", &overlay("spec:\n  containers: [\n"));
    refused(
        "pod_template_with_variable",
        &overlay(
            "spec:\n  containers:\n  - name: main\n    env: [{name: A, value: @{tfstate-bucket}}]\n  restartPolicy: OnFailure",
        ),
    );
    refused(
        "pod_template_embedded",
        "name: p\nspec:\n  runner: {image: a, podTemplateOverlay: \"@{embed: manifest.yaml}\"}\n",
    );
}

#[test]
fn signadot_sandboxes() {
    let sandbox = |spec: &str| format!("name: s\nspec:\n  cluster: c\n  {}\n", spec.replace('\n', "\n  "));
    refused(
        "number_in_params",
        &sandbox("resources:\n- name: r\n  plugin: p\n  params: {count: 5, ratio: 1.50, fast: yes, ok: \"5\"}"),
    );
    refused("value_is_very_long", &sandbox(&format!("ttl: {{duration: \"{}\"}}", "x".repeat(5000))));
    refused("bad_ttl", &sandbox("ttl: {duration: 2 days, offsetFrom: now}"));
    refused("bad_version_of_a_resource", &sandbox("resources:\n- {name: r, plugin: p}\n- {name: t, plugin: q@one}"));
    refused("unknown_sandbox_key", &sandbox("resource: []\nforks: {}"));
    refused(
        "bad_consumer",
        &sandbox(
            "forks:\n- customizations:\n    env:\n    - name: A\n      valueFrom: {resource: {name: r, output: a.b}}",
        ),
    );
    refused("sandbox_name_too_long", "name: a-name-that-is-longer-than-thirty\nspec: {cluster: c}\n");
    refused("no_cluster", "name: s\nspec: {resources: []}\n");
    refused("route_group_match", "name: s\nspec:\n  match: {label: {key: a}, any: []}\n");
    refused("route_group_label", "name: s\nspec:\n  match: {any: [{label: {key: a}}]}\n");
    refused("route_group_endpoint", "name: s\nspec:\n  match: {all: []}\n  endpoints: [{name: a}]\n");
}

#[test]
fn our_plugins() {
    refused(
        "our_unknown_keys",
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\npoststart: {}\nrunners: {default: {image: a, podTemplateOverlay: \"\"}}\npreStart:\n  make:\n    pod: {script: \"#!/bin/sh\", image: x}\n    retries: {}\n",
    );
    refused("no_unit_kind", &unit("timeout: 5m"));
    refused("two_unit_kinds", &unit(&format!("{POD}\nwebhook: {{url: \"https://a.example\"}}")));
    refused("bad_durations", &unit(&format!("{POD}\ntimeout: 5\nretry: {{backoff: 5 minutes, maxBackoff: 0s}}")));
    refused(
        "bad_retry",
        &unit(&format!("{POD}\nretry: {{attempts: 0, backoff: 5m, maxBackoff: 5s, on: [timeouts, 200, 5xx]}}")),
    );
    refused("wrong_types", &unit(&format!("{POD}\nwhen: true\nafter: 5\ninputs: [a]\noutputs: nothing")));
    refused("pod_is_a_list", &unit("pod: [a]"));
    refused("empty_values", &unit(&format!("{POD}\ninputs:\noutputs:")));
    refused("bad_inputs", &unit(&format!("{POD}\ninputs:\n  a: {{env: A}}\n  d: [1]\n  \"no name\": 1")));
    refused(
        "bad_input_destinations",
        &unit(&format!(
            "{POD}\ninputs:\n  b: {{value: 1, env: EBB_KEY}}\n  c: {{value: 1, path: ../x}}\n  d-e: 1\n  x: {{value: 1, env: D_E}}\n  ebb-attempt: 1"
        )),
    );
    refused(
        "bad_pod_outputs",
        &unit(&format!("{POD}\noutputs:\n  b: {{file: /a, value: b}}\n  c: {{sensitive: true}}")),
    );
    refused(
        "outputs_of_another_action",
        &unit(&format!("{POD}\noutputs:\n  a: {{value: \"${{response.body}}\"}}\n  d: {{file: out}}")),
    );
    refused(
        "bad_webhook",
        &unit(
            "webhook: {url: \"https://a.example\", headers: {\"a b\": c}}\noutputs: {a: {file: /x}}\ninputs: {b: {value: 1, env: B}}",
        ),
    );
    refused("unknown_method", &unit("webhook: {url: \"https://a.example\", method: post}"));
    refused(
        "describe_of_an_idempotent_webhook",
        &unit("webhook: {url: \"https://a.example\", describe: {url: \"https://a.example/made\"}}"),
    );
    refused("bad_object", &unit("object: {manifest: {kind: A}}"));
    refused("bad_objects", &unit("object: {manifest: [{apiVersion: v1, kind: A}, {kind: B}, text]}"));
    refused(
        "bad_object_outputs",
        &unit(
            "object: {manifest: {apiVersion: v1, kind: A}}\noutputs:\n  a: {secret: {name: a}}\n  b: {secret: {name: a, key: b, more: c}}\n  c: {secret: {name: a, key: b}, value: x}\n  d: {sensitive: true}",
        ),
    );
    refused("secret_of_a_pod", &unit(&format!("{POD}\noutputs: {{a: {{secret: {{name: a, key: b}}}}}}")));
    refused("object_as_text", &unit("object: {manifest: \"@{embed: manifest.yaml}\"}"));
    refused(
        "bad_params",
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams:\n  a: {type: int}\n  f: {default: 1}\n  g: {type: boolean, minLength: -1, pattern: x}\n  a.b: {type: string}\n",
    );
    refused(
        "param_contradictions",
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams:\n  b: {type: string, default: 5, enum: [x, yes]}\n  c: {type: integer, default: 1.5, minimum: 5, maximum: 1}\n  d: {type: string, sensitive: true, default: x, minimum: 1}\n  e: {type: string, enum: [small, large], default: lage, required: true}\n  g: {type: boolean, minLength: 2, pattern: x, enum: []}\n",
    );
    refused(
        "our_reserved_names",
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners:\n  r:\n    image: a\n    podTemplate: |\n      spec: {volumes: [{name: ebb-io}]}\n",
    );
}

#[test]
fn our_sandboxes() {
    refused(
        "bad_sandbox",
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: pr_1\nttl: 8\nlabels: {pr: 5}\nresources:\n  a: {plugin: \"p@one\", param: {}}\n  b: {}\n  c d: {plugin: p}\nenv: {1A: x, B: 5}\nspec: {}\n",
    );
}

#[test]
fn documents_of_another_kind() {
    let files = load::NoFiles;
    let vars = DocumentVars::none();
    let said = |result: Result<(), crate::diagnostic::Diagnostics>| result.unwrap_err().plain();
    let sandbox = "name: s\nspec: {cluster: c}\n";
    assert_eq!(
        said(load::plugins("s.yaml", sandbox, &files, &vars).map(drop)),
        "s.yaml:1:7: error[not-a-plugin]: this is a sandbox, a plugin is wanted\n"
    );
    assert_eq!(
        said(load::sandbox("p.yaml", "name: p\nspec: {runner: {image: a}}\n", &files, &vars).map(drop)),
        "p.yaml:1:7: error[not-a-sandbox]: this is a plugin, a sandbox is wanted\n"
    );
    let two = format!("{sandbox}---\n{sandbox}");
    assert_eq!(
        said(load::sandbox("s.yaml", &two, &files, &vars).map(drop)),
        "s.yaml:4:7: error[several-documents]: one document is wanted, here are 2\n"
    );
    let embeds = "name: p\nspec:\n  runner: {image: \"@{embed: x}\"}\n";
    assert!(
        said(load::plugins("p.yaml", embeds, &files, &vars).map(drop)).contains("p.yaml:3:20: error[embed-not-here]")
    );
}

#[test]
fn everything_wrong_comes_together() {
    let text = "name: p\nspec:\n  runner: {image: a, imag: a}\n  create:\n  - {name: a_b, script: \"@{nothing}\"}\n  - {name: c, script: echo}\n";
    let wrong = load::plugins("p.yaml", text, &load::NoFiles, &DocumentVars::none()).unwrap_err();
    let codes: Vec<_> = wrong.iter().map(|d| (d.code, d.at.map(|at| at.line))).collect();
    assert_eq!(
        codes,
        [
            ("unknown-key", Some(3)),
            ("bad-name", Some(5)),
            ("unexpanded-variable", Some(5)),
            ("no-interpreter", Some(6))
        ]
    );
}

#[test]
fn drawings_differ_in_ink_only() {
    let wrong = load::plugins("p.yaml", "name: 5\nspec: {runner: {image: a}}\n", &load::NoFiles, &DocumentVars::none())
        .unwrap_err();
    assert!(wrong.drawn(DiagnosticStyle::Coloured).contains('\u{1b}'));
    assert!(wrong.drawn(DiagnosticStyle::Ascii).is_ascii());
    assert!(!wrong.drawn(DiagnosticStyle::Plain).contains('\u{1b}'));
    let none = crate::expr::nearest("zzz", ["name", "spec"]);
    assert_eq!(none, None);
    assert_eq!(crate::expr::nearest("queue_url", ["queue-name", "queue-url"]), Some("queue-url"));
}

#[test]
fn templates_without_quotes() {
    refused(
        "unquoted_template",
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams: {x: {type: string}}\npreStart:\n  u: {webhook: {url: \"https://e.example.org\", body: {key: ${params.x}}}}\n",
    );
}

#[test]
fn a_route_group_does_not_end_while_sandboxes_match_it() {
    let group = |ttl: &str| {
        let text = format!("name: g\nspec:\n  match: {{label: {{key: a, value: b}}}}\n  ttl: {{duration: 1d{ttl}}}\n");
        match load::document("g.yaml", &text, &load::NoFiles, &DocumentVars::none()).unwrap() {
            load::Document::RouteGroup(group) => group,
            other => panic!("{other:?}"),
        }
    };
    for ttl in ["", ", offsetFrom: noMatchedSandboxes"] {
        let refused = crate::compile::check_route_group(&group(ttl)).unwrap_err();
        let told: Vec<&str> = refused.iter().map(|found| found.code).collect();
        assert_eq!(told, ["ttl-offset"]);
        assert!(refused.iter().all(|found| found.at.is_some()), "{refused}");
    }
    assert_eq!(crate::compile::check_route_group(&group(", offsetFrom: createdAt")), Ok(()));
}
