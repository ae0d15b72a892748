//! Tests rendered units.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixtures::{ALONE, OneFile, SHARED_PG, TENANT_DB, TOPICS, WIRED, alone, compiled, pair, planned};
use crate::plan::HookPlan;
use crate::render::{
    Answers, InputValue, ProducerState, RenderError, RenderResult, RenderValue, RenderedRequest, RequestBody, SecretRef,
};
use crate::tests::rows;
use crate::{DocumentVars, KnownOutputs, NoFiles, Plan, RenderedUnit, TargetFacts, UnitContext, UnitRef, load, render};

fn facts() -> TargetFacts {
    TargetFacts {
        kind: "sandbox".to_owned(),
        name: "pr 1234/x".to_owned(),
        uid: "u-1".to_owned(),
        namespace: Some("team-a".to_owned()),
        key: "k5ncuujcjllj2".to_owned(),
        generation: 3,
        cluster: Some("staging-eu".to_owned()),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
    }
}

fn secret(cluster: &str) -> RenderValue {
    RenderValue::Secret(SecretRef {
        cluster: Some(cluster.to_owned()),
        namespace: Some("team-a".to_owned()),
        name: "ebb-out".to_owned(),
        key: "dsn".to_owned(),
    })
}

fn outputs(list: &[(&str, RenderValue)]) -> ProducerState {
    ProducerState::Outputs(list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn text(text: &str) -> RenderValue {
    RenderValue::Json(json!(text))
}

fn at(plan: &Plan, key: &str) -> UnitRef {
    let mut units = plan.hooks.iter().flat_map(HookPlan::places);
    units.find(|(_, unit)| unit.key == key).unwrap().0
}

fn known(plan: &Plan, states: &[(&str, ProducerState)]) -> KnownOutputs {
    states.iter().map(|(key, state)| (at(plan, key), state.clone())).collect()
}

fn rendered(plan: &Plan, key: &str, states: &[(&str, ProducerState)]) -> RenderResult<RenderedUnit> {
    render::unit(UnitContext { plan, at: at(plan, key), facts: &facts(), known: &known(plan, states) }, None)
}

fn previewed(plan: &Plan, key: &str) -> RenderResult<RenderedUnit> {
    render::preview(UnitContext { plan, at: at(plan, key), facts: &facts(), known: &KnownOutputs::new() })
}

fn response_outputs(plan: &Plan, key: &str, body: Value) -> RenderResult<BTreeMap<String, RenderValue>> {
    let response = render::response_value(200, BTreeMap::new(), body);
    let (facts, known) = (facts(), KnownOutputs::new());
    let context = UnitContext { plan, at: at(plan, key), facts: &facts, known: &known };
    context.outputs(Answers { response: &response, poll: None })
}

fn shown(plan: &Plan, states: &[(&str, ProducerState)]) -> String {
    let known = known(plan, states);
    let mut shown = String::new();
    for unit in plan.hooks.iter().flat_map(|hook| &hook.units) {
        match rendered(plan, &unit.key, states) {
            Ok(rendered) => shown += &format!("{} {rendered:#?}\n", unit.key),
            Err(error) => shown += &format!("{} error: {error}\n", unit.key),
        }
    }
    shown += &format!("outputs {:#?}\n", render::resource_outputs(plan, &facts(), &known, None));
    let (variables, mut errors) = render::env(plan, &facts(), &known);
    let env = errors.pop().map_or(Ok(variables), Err);
    shown += &format!("env {env:#?}\n");
    shown
}

fn wired() -> Plan {
    compiled(WIRED, &[TENANT_DB, SHARED_PG]).unwrap().0
}

#[test]
fn units_with_all_outputs() {
    let known = [
        ("pg/start", outputs(&[("dsn", secret("staging-eu")), ("port", text("5432"))])),
        ("users/database", outputs(&[("dsn", secret("staging-eu")), ("name", text("k5nc"))])),
        ("users/cache", outputs(&[("host", text("cache.local"))])),
        ("users/register", outputs(&[("tenant", RenderValue::Json(json!("../a b&c")))])),
    ];
    insta::assert_snapshot!(shown(&wired(), &known));
}

#[test]
fn units_with_failed_or_skipped_producers() {
    let skipped = [("pg/start", ProducerState::Skipped), ("users/database", ProducerState::Absent)];
    insta::assert_snapshot!("skipped", shown(&wired(), &skipped));
    let server = outputs(&[("dsn", secret("staging-eu")), ("port", text("5432"))]);
    let failed =
        [("pg/start", server), ("users/database", ProducerState::Absent), ("users/register", ProducerState::Absent)];
    insta::assert_snapshot!("failed", shown(&wired(), &failed));
}

/// Units over one list read the output of their entry, others a list.
#[test]
fn entries_of_a_list_are_rendered() {
    let plan = pair(TOPICS).unwrap();
    let made = |id: &str| outputs(&[("id", text(id))]);
    let all = [("t/create[orders]", made("1")), ("t/create[a-b-c14cddc0]", made("2"))];
    let shown = |rendered: RenderResult<RenderedUnit>| match rendered.unwrap() {
        RenderedUnit::Webhook(RenderedRequest { url, body, .. }) => {
            json!([url.trim_start_matches("https://kafka.example.org"), body.map(|body| body.shown())])
        }
        other => panic!("{other:?}"),
    };
    for (key, expected) in rows::<(String, Value)>("entries_of_a_list_are_rendered") {
        assert_eq!(shown(rendered(&plan, &key, &all)), expected, "{key}");
    }
    assert_eq!(shown(previewed(&plan, "t/announce")), json!(["/announce", {"ids": "<t/create.id>"}]));
    for (second, expected) in [(made("2"), json!(["1", "2"])), (ProducerState::Absent, json!(["1"]))] {
        let known = known(&plan, &[all[0].clone(), ("t/create[a-b-c14cddc0]", second)]);
        let public = render::resource_outputs(&plan, &facts(), &known, None).unwrap();
        assert_eq!(public["t"]["ids"], RenderValue::Json(expected));
        assert_eq!(public["none"]["ids"], RenderValue::Json(json!([])));
    }
    let nothing = render::resource_outputs(&plan, &facts(), &KnownOutputs::new(), None).unwrap();
    assert_eq!(nothing["t"].get("ids"), None);
}

#[test]
fn a_drain_without_outputs_is_skipped() {
    let plan = alone(include_str!("../../../tests/plans/drain.yaml"));
    let absent = [("r/a", ProducerState::Absent)];
    let skipped = RenderedUnit::Skipped("reads output `id` of `r/a`, which has none".to_owned());
    assert_eq!(rendered(&plan, "r/drain", &absent), Ok(skipped));
    assert!(matches!(rendered(&plan, "r/stop", &absent), Ok(RenderedUnit::Webhook(_))));
}

#[test]
fn secrets_of_other_clusters_are_rejected() {
    let other = outputs(&[("dsn", secret("other"))]);
    let error = rendered(&wired(), "users/database", &[("pg/start", other)]).unwrap_err();
    insta::assert_snapshot!(error);
}

#[test]
fn units_of_infrakit() {
    let text = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\npreStart:\n  net:\n    infrakit: {plugin: aws/vpc, properties: {cidr: 10.0.0.0/16, key: \"${resource.key}\"}}\n    outputs: {id: {value: \"${instance.ID}\"}, gw: {value: \"${instance.Properties.gateways[0]}\"}}\n  disk:\n    infrakit: {plugin: aws/ebs, properties: {net: \"${units.net.outputs.gw}\", size: 5}, init: \"echo ${units.net.outputs.gw}\", tags: {net: \"${units.net.outputs.id}\", n: \"${target.generation}\"}, logicalID: \"${resource.key}\", attachments: [{ID: \"${units.net.outputs.id}\", Type: net}]}\n    timeout: 90s\n  kept: {infrakit: {plugin: aws}, cleanup: none}\noutputs: {id: \"${units.net.outputs.id}\"}\n";
    let plan = alone(text);
    let units: Vec<&str> = plan.hooks.iter().flat_map(|hook| &hook.units).map(|unit| unit.key.as_str()).collect();
    assert_eq!(units, ["r/net", "r/disk", "r/kept", "r/net.removal", "r/disk.removal"]);
    let net = plan.unit(at(&plan, "r/net")).unwrap();
    let made = |instance: Value| render::outputs_from_instance(net, &instance);
    let instance =
        json!({"ID": "i-1", "LogicalID": null, "Tags": {}, "Properties": {"gateways": [{"ip": "10.0.0.1"}]}});
    let outputs = ProducerState::Outputs(made(instance).unwrap());
    insta::assert_snapshot!(format!(
        "{}\n{}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        serde_json::to_string_pretty(&plan.unit(at(&plan, "r/disk")).unwrap().action).unwrap(),
        made(json!({"ID": "i-1"})).unwrap_err(),
        rendered(&plan, "r/disk", &[("r/net", outputs.clone())]),
        rendered(&plan, "r/disk", &[("r/net", ProducerState::Absent)]),
        rendered(&plan, "r/disk.removal", &[("r/net", ProducerState::Absent)]),
        previewed(&plan, "r/disk"),
    ));
    let known = [("r/net", outputs)];
    assert_eq!(rendered(&plan, "r/disk.removal", &known), rendered(&plan, "r/disk", &known));
    let Ok(RenderedUnit::Infrakit(disk)) = rendered(&plan, "r/disk", &known) else { panic!("an instance") };
    let Value::Object(spec) = json!(disk) else { panic!("an object") };
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["Properties", "Init", "Tags", "LogicalID", "Attachments"]);
}

#[test]
fn previews() {
    let plan = wired();
    let units = plan.hooks.iter().flat_map(|hook| &hook.units);
    let shown: String = units.map(|unit| format!("{} {:#?}\n", unit.key, previewed(&plan, &unit.key))).collect();
    insta::assert_snapshot!(shown);
}

/// Returns a plugin whose unit `use` has these inputs.
fn one(inputs: &str) -> Plan {
    let plugin = include_str!("../../../tests/plans/inputs.yaml").replace("ONES", &vec!["1"; 400].join(", "));
    alone(&plugin.replace("INPUTS\n", inputs))
}

fn used(inputs: &str, made: ProducerState) -> String {
    match rendered(&one(inputs), "r/use", &[("r/make", made)]) {
        Ok(render::RenderedUnit::Pod { inputs }) => {
            inputs.iter().map(|input| format!("{} = {:?}\n", input.name, input.value)).collect()
        }
        Ok(other) => format!("{other:?}\n"),
        Err(error) => format!("error: {error}\n"),
    }
}

#[test]
fn types_are_kept_and_only_optional_outputs_may_be_absent() {
    let mut table = String::new();
    for (input, made) in rows::<(String, String)>("types_are_kept_and_only_optional_outputs_may_be_absent") {
        let made = match made.as_str() {
            "absent" => ProducerState::Absent,
            "skipped" => ProducerState::Skipped,
            "no text" => outputs(&[("o", RenderValue::Bytes(vec![255]))]),
            value => outputs(&[("o", text(value))]),
        };
        table += &format!("{input}\n{}\n", used(&format!("      {input}\n"), made));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn outputs_of_responses() {
    let plan = wired();
    let good = response_outputs(&plan, "users/register", json!({"id": 7})).unwrap();
    assert_eq!(good, BTreeMap::from([("tenant".to_owned(), RenderValue::Json(json!(7)))]));
    insta::assert_snapshot!(response_outputs(&plan, "users/register", json!("no")).unwrap_err());
}

#[test]
fn only_an_optional_output_may_be_null() {
    let made = |optional: bool, body: Value| {
        let plan = alone(&format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\npreStart:\n  u:\n    webhook: {{url: \"https://example.org/\"}}\n    outputs: {{o: {{value: \"${{response.body.a.b}}\", optional: {optional}}}}}\n"
        ));
        response_outputs(&plan, "r/u", body)
    };
    let null = BTreeMap::from([("o".to_owned(), RenderValue::Json(Value::Null))]);
    for (body, expected) in rows::<(Value, String)>("only_an_optional_output_may_be_null") {
        assert_eq!(made(false, body.clone()).unwrap_err().to_string(), expected);
        assert_eq!(made(true, body), Ok(null.clone()), "{expected}");
    }
    let mistyped = made(true, json!({"a": [1]})).unwrap_err();
    assert!(matches!(mistyped, RenderError::NoOutput { .. }), "{mistyped}");
}

/// An answer of another form than a condition reads shows neither an absence nor a success.
#[test]
fn answers_of_another_form_show_nothing() {
    let plan = alone(include_str!("../../../tests/plans/judged-answers.yaml"));
    let (facts, known) = (facts(), KnownOutputs::new());
    let of = |key: &str| UnitContext { plan: &plan, at: at(&plan, key), facts: &facts, known: &known };
    let (made, repeated, verification) = (of("r/a"), of("r/b"), of("r/c-verify"));
    for (body, is_read) in rows::<(Value, bool)>("answers_of_another_form_show_nothing") {
        let answer = render::response_value(200, BTreeMap::new(), body);
        for result in [
            made.failure(&answer).map(drop),
            made.is_shown(&answer).map(drop),
            made.state(Answers { response: &Value::Null, poll: Some(&answer) }).map(drop),
            repeated.is_repeated(Answers { response: &answer, poll: None }).map(drop),
            verification.is_shown(&answer).map(drop),
            verification.next_page("https://x.example.org/", &answer).map(drop),
        ] {
            let is_misread = matches!(result, Err(RenderError::Misread { .. }));
            assert_eq!((result.is_ok(), is_misread), (is_read, !is_read), "{answer}: {result:?}");
        }
    }
}

/// The reason of a failure, an empty text without one, or an error.
#[test]
fn failures_of_answers() {
    for (failed, body, expected) in rows::<(String, Value, String)>("failures_of_answers") {
        let plan = alone(&format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\npreStart:\n  u: {{cleanup: none, webhook: {{url: \"https://example.org/\", failed: {failed:?}}}}}\n"
        ));
        let (facts, known) = (facts(), KnownOutputs::new());
        let context = UnitContext { plan: &plan, at: at(&plan, "r/u"), facts: &facts, known: &known };
        let failure = context.failure(&render::response_value(200, BTreeMap::new(), body.clone()));
        let reason = failure.map(|failure| failure.unwrap_or_default().message);
        assert_eq!(reason.unwrap_or_else(|error| error.to_string()), expected, "{failed}: {body}");
    }
}

#[test]
fn a_missing_optional_param_is_null() {
    let plan = alone(include_str!("../../../tests/plans/optional.yaml"));
    let RenderedUnit::Webhook(request) = rendered(&plan, "r/u", &[]).unwrap() else { panic!("a webhook") };
    assert_eq!(request.body, Some(RequestBody::Json(json!({"a": null, "is": true}))));
}

const NULL_SOURCE: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: q\npreStart:\n  a: {webhook: {url: \"https://e.example\"}, outputs: {o: {value: \"${response.body.o}\", optional: true}}}\noutputs: {o: \"${units.a.outputs.o}\"}\n";

/// A Secret gets text in base64, and the relay copies what only the cluster has. A preview shows the texts.
#[test]
fn bound_objects() {
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\ncluster: staging-eu\nresources: {pg: {plugin: shared-postgres}}\nbind:\n- secret: {namespace: web, name: \"db-${target.key}\"}\n  data: {URL: \"${resources.pg.outputs.dsn}\", PORT: \"p${resources.pg.outputs.port}\"}\n- configMap: {namespace: web, name: db}\n  data: {PORT: \"${resources.pg.outputs.port}\"}\n";
    let (plan, warnings) = compiled(sandbox, &[SHARED_PG]).unwrap();
    assert_eq!(warnings, []);
    let RenderValue::Secret(kept) = secret("staging-eu") else { panic!("it is a Secret") };
    let states = [("pg/start", outputs(&[("dsn", secret("staging-eu")), ("port", text("5432"))]))];
    let object = |kind: &str, name: &str, data: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "web"}, "data": data});
    let name = "db-k5ncuujcjllj2";
    let expected = RenderedUnit::Object {
        manifests: vec![object("Secret", name, json!({"PORT": "cDU0MzI="}))],
        fill: vec![("URL".to_owned(), kept)],
    };
    assert_eq!(rendered(&plan, "bind/secret-1", &states), Ok(expected));
    let manifests = vec![object("ConfigMap", "db", json!({"PORT": "5432"}))];
    assert_eq!(rendered(&plan, "bind/configmap-2", &states), Ok(RenderedUnit::Object { manifests, fill: vec![] }));
    let Ok(RenderedUnit::Object { manifests, fill }) = previewed(&plan, "bind/secret-1") else { panic!("an object") };
    assert_eq!(
        (manifests[0]["stringData"].clone(), fill),
        (json!({"PORT": "p<pg/start.port>", "URL": "<sensitive>"}), vec![])
    );
    // The values of a resource that was skipped are nowhere.
    let skipped = rendered(&plan, "bind/secret-1", &[("pg/start", ProducerState::Skipped)]);
    assert!(matches!(skipped, Ok(RenderedUnit::Skipped(_))), "{skipped:?}");
}

/// The params are wired to an output that is null. Only `p` may be null.
const NULL_PARAMS: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  n: {plugin: q}\n  r: {plugin: p, params: {p: \"${resources.n.outputs.o}\", s: \"${resources.n.outputs.o}\", t: \"x${resources.n.outputs.o}\"}}\n";

/// Renders a unit of a plugin whose params are wired to an output that is null.
fn with_null_params(hooks: &str, key: &str) -> RenderResult<RenderedUnit> {
    let plugin = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {{sh: {{image: alpine}}}}\nparams: {{p: {{type: string, optional: true}}, s: {{type: string}}, t: {{type: string}}}}\n{hooks}"
    );
    let (plan, _) = compiled(NULL_PARAMS, &[NULL_SOURCE, &plugin]).unwrap();
    rendered(&plan, key, &[("n/a", outputs(&[("o", RenderValue::Json(Value::Null))]))])
}

#[test]
fn null_becomes_no_text() {
    let needed = "`params.s` is null; expected a value; read it with `.?`, or declare it with `optional: true`";
    let url = "url: \"https://e.example/\"";
    for (webhook, expected) in rows::<(String, Result<Value, String>)>("null_becomes_no_text") {
        let written = if webhook.starts_with("url:") { webhook.clone() } else { format!("{url}, {webhook}") };
        let hooks = format!("preStart: {{u: {{webhook: {{{written}}}}}}}\n");
        let made = with_null_params(&hooks, "r/u").map(|made| match made {
            RenderedUnit::Webhook(request) => request.body.map_or(json!(request.headers), |body| body.shown()),
            other => panic!("{other:?}"),
        });
        assert_eq!(made.map_err(|error| error.to_string()), expected, "{webhook}");
    }
    let inputs = |inputs: &str| {
        with_null_params(&format!("preStart: {{u: {{pod: {{script: '#!/bin/sh'}}, inputs: {inputs}}}}}\n"), "r/u")
    };
    let made = inputs("{a: \"${params.p}\", b: \"${params.?s}\", c: null, d: \"d${params.p}\"}");
    let Ok(RenderedUnit::Pod { inputs: unset }) = made else { panic!("a pod") };
    let values: Vec<InputValue> = unset.into_iter().map(|input| input.value).collect();
    let absent = InputValue::Absent;
    assert_eq!(values, [absent.clone(), absent.clone(), absent, InputValue::Text("d".to_owned())]);
    assert_eq!(inputs("{a: \"${params.s}\"}").unwrap_err().to_string(), format!("input `a`: {needed}"));
    // An undo runs without the values.
    let hooks = format!(
        "preStart: {{u: {{webhook: {{{url}}}}}}}\npostStop: {{v: {{undoes: u, webhook: {{{url}, headers: {{x-a: \"${{params.s}}\"}}, body: {{a: \"${{params.t}}\"}}}}}}}}\n"
    );
    let Ok(RenderedUnit::Webhook(undo)) = with_null_params(&hooks, "r/v") else { panic!("a webhook") };
    assert_eq!((undo.headers.len(), undo.body), (0, Some(RequestBody::Json(json!({})))));
}

#[test]
fn a_variable_is_null_only_if_it_is_optional() {
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {n: {plugin: q}}\nenv:\n  A: \"${resources.n.outputs.o}\"\n  B: {value: \"${resources.n.outputs.o}\", optional: true}\n  C: \"c${resources.n.outputs.o}\"\n  D: {value: \"d${resources.n.outputs.?o}\"}\n  E: \"\"\n";
    let (plan, _) = compiled(sandbox, &[NULL_SOURCE]).unwrap();
    assert!(plan.optional_env.iter().eq(["B"]));
    let null = known(&plan, &[("n/a", outputs(&[("o", RenderValue::Json(Value::Null))]))]);
    let (variables, errors) = render::env(&plan, &facts(), &null);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "env `A`: `${resources.n.outputs.o}` is null; expected a value; to leave it out, write `{value: \"${…}\", optional: true}`",
            "env `C`: `resources.n.outputs.o` is null; expected a value; read it with `.?`",
        ]
    );
    assert_eq!(variables, BTreeMap::from([("D".to_owned(), text("d")), ("E".to_owned(), text(""))]));
}

#[test]
fn params_and_env_read_own_outputs() {
    let reader = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: reader\nparams: {id: {type: string}}\npreStart:\n  make: {cleanup: none, webhook: {url: \"https://e.example.org/${resource.key}\", body: {id: \"${params.id}\"}}}\noutputs: {id: \"${params.id}\"}\n";
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  a: {plugin: reader, params: {id: \"e-${units.event.outputs.id}\"}}\n  b: {plugin: reader, params: {id: \"${resources.a.outputs.id}\"}}\npreStart:\n  event: {cleanup: none, webhook: {url: \"https://e.example.org/\"}, outputs: {id: {value: \"${response.body.id}\"}}}\nenv: {E: \"${units.event.outputs.id}\"}\n";
    let (plan, warnings) = compiled(sandbox, &[reader]).unwrap();
    assert!(warnings.iter().all(|warning| warning.code != "unused-output"), "{warnings:?}");
    let made = [("target/event", outputs(&[("id", text("7"))]))];
    let body = |rendered: RenderResult<RenderedUnit>| match rendered.unwrap() {
        RenderedUnit::Webhook(request) => request.body.map(|body| body.shown()),
        other => panic!("{other:?}"),
    };
    for key in ["a/make", "b/make"] {
        assert_eq!(body(rendered(&plan, key, &made)), Some(json!({"id": "e-7"})), "{key}");
        assert_eq!(body(previewed(&plan, key)), Some(json!({"id": "e-<target/event.id>"})), "{key}");
    }
    let (variables, errors) = render::env(&plan, &facts(), &known(&plan, &made));
    assert_eq!((variables, errors), (BTreeMap::from([("E".to_owned(), text("7"))]), Vec::new()));
    assert!(plan.visible_outputs(None)[&at(&plan, "target/event")].contains("id"));
}

/// Users of a plugin cannot change its scripts, images and namespaces.
#[test]
fn scripts_images_and_namespaces_are_not_templates() {
    let text = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams: {v: {type: string}}\nrunners: {sh: {image: \"a/${params.v}\", namespace: units}}\npreStart:\n  u:\n    pod: {script: \"#!/bin/sh\\necho ${params.v} $${target.name}\"}\n    inputs: {v: \"${params.v}\"}\n";
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {r: {plugin: p, params: {v: evil}}}\n";
    let (plan, _) = compiled(sandbox, &[text]).unwrap();
    let unit = plan.unit(at(&plan, "r/u")).unwrap();
    let crate::plan::Action::Pod(pod) = &unit.action else { panic!("a pod") };
    assert_eq!(pod.image, "a/${params.v}");
    assert_eq!(pod.namespace.as_deref(), Some("units"));
    assert_eq!(pod.script, "#!/bin/sh\necho ${params.v} $${target.name}");
    let RenderedUnit::Pod { inputs } = rendered(&plan, "r/u", &[]).unwrap() else { panic!("a pod") };
    assert_eq!(inputs[0].value, InputValue::Text("evil".to_owned()));
}

/// An embedded manifest with several documents is a list of manifests.
#[test]
fn embedded_manifests_may_have_several_documents() {
    let named = |number: u32| format!("apiVersion: v1\nkind: K\nmetadata: {{name: \"${{target.key}}-{number}\"}}\n");
    let shown = |unit: &str, file: &str| {
        let text = format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\npreStart:\n  u: {{object: {{manifest: {unit}}}}}\n"
        );
        let plugin = load::plugins("p", &text, &OneFile(file.as_bytes()), &DocumentVars::none());
        let sandbox = load::sandbox("s.yaml", ALONE, &NoFiles, &DocumentVars::none()).unwrap();
        let (plan, _) = planned(&sandbox, &plugin.unwrap()).unwrap();
        let Ok(RenderedUnit::Object { manifests, .. }) = rendered(&plan, "r/u", &[]) else { panic!("objects") };
        let names = manifests.iter().map(|manifest| manifest["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let two = format!("{}---\n{}---\n", named(1), named(2));
    let (first, second) = ("k5ncuujcjllj2-1", "k5ncuujcjllj2-2");
    assert_eq!(shown("\"@{embed[yaml]: x}\"", &named(1)), [first]);
    assert_eq!(shown("\"@{embed[yaml]: x}\"", &two), [first, second]);
    let list = "[{apiVersion: v1, kind: K, metadata: {name: \"${target.key}-2\"}}, \"@{embed[yaml]: x}\"]";
    assert_eq!(shown(list, &named(1)), [second, first]);
}
