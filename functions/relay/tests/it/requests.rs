//! Requests of a control plane, and the tasks in them.

use ebb_protocol::entrypoint::{EntrypointSpec, VERSION};
use ebb_protocol::relay::{
    DocumentFill, EnsureTask, FillWith, ObjectOutput, ObjectOutputFrom, ObjectTask, ReadyRules, RelayRequest,
    ScriptInput, ScriptOutput, SecretDocument, TaskCompletion, TaskId,
};
use ebb_protocol::value::UnitValue as Input;
use serde_json::{Value, json};

use crate::cluster::{BUSYBOX, ENTRYPOINT};

pub(crate) fn yaml(text: &str, names: &[(&str, &str)]) -> Value {
    let text = names.iter().fold(text.to_owned(), |text, (placeholder, name)| text.replace(placeholder, name));
    serde_saphyr::from_str(&text).unwrap()
}

pub(crate) fn name(unit: &str, attempt: u32) -> TaskId {
    TaskId { unit: unit.to_owned(), attempt }
}

/// Returns the request of a task. The token of its callback is `UNIT.ATTEMPT`.
pub(crate) fn ensure(name: &TaskId, url: &str, task: ObjectTask) -> EnsureTask<ObjectTask> {
    let request = json!({
        "v": 1, "task": name, "validForMs": 60_000, "timeoutMs": 90_000,
        "callback": {"url": url, "token": token(name)}, "body": task,
    });
    serde_json::from_value(request).unwrap()
}

pub(crate) fn token(name: &TaskId) -> String {
    format!("{}.{}", name.unit, name.attempt)
}

pub(crate) fn cancel(name: &TaskId) -> RelayRequest {
    RelayRequest::Cancel { task: name.clone(), grace_ms: 1_000 }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Returns the fields of an object that set its finalizers.
pub(crate) fn finalizers(list: Value) -> Value {
    json!({"metadata": {"finalizers": list}})
}

/// Returns a task that applies objects and ends when they are ready.
pub(crate) fn objects(apply: Vec<Value>) -> ObjectTask {
    let until = TaskCompletion::Ready(vec![]);
    ObjectTask { instance: "instance-1".to_owned(), apply, until, ..ObjectTask::default() }
}

pub(crate) fn removal(units: &[&str]) -> ObjectTask {
    let remove = units.iter().map(|&unit| unit.to_owned()).collect();
    ObjectTask { instance: "instance-1".to_owned(), remove, ..ObjectTask::default() }
}

/// Returns the completion of a task whose first object is ready by a rule.
pub(crate) fn ready_if(rule: &str) -> TaskCompletion {
    TaskCompletion::Ready(vec![ReadyRules { ready: Some(rule.to_owned()), fail: None }])
}

/// Returns an output: the value of an expression, or with a key that of the Secret that the expression names.
pub(crate) fn output(name: &str, text: &str, key: &str, sensitive: bool) -> ObjectOutput {
    let (text, key) = (text.to_owned(), key.to_owned());
    let from =
        if key.is_empty() { ObjectOutputFrom::Value(text) } else { ObjectOutputFrom::Secret { name: text, key } };
    ObjectOutput { name: name.to_owned(), from, sensitive, optional: false }
}

pub(crate) fn script(name: &TaskId, text: &str) -> ObjectTask {
    ScriptJob::new(name, text).into_task(name)
}

pub(crate) struct ScriptJob {
    pub(crate) spec: EntrypointSpec,
    pub(crate) job: Value,
    pub(crate) fill: Vec<DocumentFill>,
}

impl ScriptJob {
    pub(crate) fn new(name: &TaskId, text: &str) -> Self {
        let spec = json!({
            "v": VERSION, "text": format!("#!/bin/sh\n{text}"), "timeoutMs": 80_000, "graceMs": 1_000,
            "folder": "/ebb-work", "terminationLog": "/dev/termination-log",
            // Replaced by the relay.
            "relay": {"url": "", "token": "", "heartbeatMs": 0, "reportRetryMs": 0},
        });
        let spec = serde_json::from_value(spec).unwrap();
        let fill = vec![DocumentFill { pointer: "/relay".to_owned(), with: FillWith::Report }];
        let job = yaml(
            include_str!("requests/script.yaml"),
            &[("NAME", &secret_of(name)), ("BUSYBOX", BUSYBOX), ("ENTRYPOINT", ENTRYPOINT)],
        );
        Self { spec, job, fill }
    }

    pub(crate) fn input(mut self, name: &str, value: Input) -> Self {
        let env = Some(name.to_uppercase());
        let (name, value) = (name.to_owned(), Some(value));
        self.spec.inputs.push(ScriptInput { name, env, path: None, value, sensitive: false });
        self
    }

    pub(crate) fn output(mut self, name: &str, sensitive: bool) -> Self {
        let path = format!("/tmp/{name}");
        self.spec.outputs.push(ScriptOutput { name: name.to_owned(), path, sensitive });
        self
    }

    pub(crate) fn pod(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.job["spec"]["template"]["spec"]);
        self
    }

    pub(crate) fn with_sidecar(self, position: usize) -> Self {
        self.pod(|pod| {
            let mut sidecar = pod["containers"][0].clone();
            (sidecar["name"], sidecar["command"]) = ("mesh".into(), json!(["sleep", "1000"]));
            pod["containers"].as_array_mut().unwrap().insert(position, sidecar);
        })
    }

    pub(crate) fn into_task(self, name: &TaskId) -> ObjectTask {
        let document = serde_json::to_value(&self.spec).unwrap();
        let (name, key) = (secret_of(name), "spec.json".to_owned());
        ObjectTask {
            instance: "instance-1".to_owned(),
            apply: vec![self.job],
            secrets: vec![SecretDocument { name, key, document, fill: self.fill }],
            until: TaskCompletion::Ended { container: "main".to_owned() },
            ..ObjectTask::default()
        }
    }
}

/// Returns the name of the Job of a task, and of its Secret.
pub(crate) fn secret_of(name: &TaskId) -> String {
    format!("ebb-{}-{}", name.unit, name.attempt)
}
