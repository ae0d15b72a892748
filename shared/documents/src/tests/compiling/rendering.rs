//! Tests rendered units.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixtures::{SHARED_PG, TENANT_DB, WIRED, alone, compiled, pair};
use crate::plan::HookPlan;
use crate::render::{Answers, InputValue, ProducerState, RenderError, RenderResult, RenderValue};
use crate::tests::rows;
use crate::{KnownOutputs, Plan, RenderedUnit, TargetFacts, UnitContext, UnitRef, render};

pub(super) fn facts() -> TargetFacts {
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

fn at(plan: &Plan, key: &str) -> UnitRef {
    let mut units = plan.hooks.iter().flat_map(HookPlan::places);
    units.find(|(_, unit)| unit.key == key).unwrap().0
}

pub(super) fn known(plan: &Plan, states: &[(&str, ProducerState)]) -> KnownOutputs {
    states.iter().map(|(key, state)| (at(plan, key), state.clone())).collect()
}

pub(super) fn rendered(plan: &Plan, key: &str, states: &[(&str, ProducerState)]) -> RenderResult<RenderedUnit> {
    render::unit(UnitContext { plan, at: at(plan, key), facts: &facts(), known: &known(plan, states) }, None)
}

pub(super) fn previewed(plan: &Plan, key: &str) -> RenderResult<RenderedUnit> {
    render::preview(UnitContext { plan, at: at(plan, key), facts: &facts(), known: &KnownOutputs::new() })
}

pub(super) fn response_outputs(plan: &Plan, key: &str, body: Value) -> RenderResult<BTreeMap<String, RenderValue>> {
    let response = render::response_value(200, BTreeMap::new(), body);
    let (facts, known) = (facts(), KnownOutputs::new());
    let context = UnitContext { plan, at: at(plan, key), facts: &facts, known: &known };
    context.outputs(Answers { response: &response, poll: None })
}

pub(super) fn shown(plan: &Plan, states: &[(&str, ProducerState)]) -> String {
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
    let (plan, _) = compiled(WIRED, &[TENANT_DB, SHARED_PG]).unwrap();
    let units = plan.hooks.iter().flat_map(|hook| &hook.units);
    let shown: String = units.map(|unit| format!("{} {:#?}\n", unit.key, previewed(&plan, &unit.key))).collect();
    insta::assert_snapshot!(shown);
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
fn outputs_that_the_environment_reads_are_visible() {
    let plan = pair(include_str!("../../../tests/plans/own-event.yaml")).unwrap();
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
