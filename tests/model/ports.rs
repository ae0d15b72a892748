//! The ports of the functions: each request waits at its gate, and then reaches the environment.

use ebb_egress::{CallError, CallResult, HttpCall, HttpRequest, HttpResponse};
use ebb_flow::ports::{MessageQueue, RelayClient, RelayError, UnitCluster};
use ebb_protocol::relay::{EnsureTask, RunningTask, TaskId, TaskState};
use ebb_protocol::sign::WEBHOOK_ID;
use ebb_protocol::unit::{ATTEMPT, CALLBACK_TOKEN, IDEMPOTENCY_KEY, UNDOES_IDEMPOTENCY_KEY};

use super::*;
use crate::fakes::PLATFORM;
use crate::simulation::{header, script_of, texts};

fn name_of(name: &TaskId) -> String {
    format!("{}.{}", name.unit, name.attempt)
}

#[async_trait]
impl RelayClient for ModelEnvironment {
    async fn ensure(&self, _: UnitCluster<'_>, request: EnsureTask) -> Result<TaskState, RelayError> {
        let script = script_of(&request).expect("the model's units are scripts");
        let env = |wanted: &str| {
            script.env.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let parcel = UnitRequest {
            unit: env("EBB_UNIT"),
            attempt: request.task.attempt,
            name: name_of(&request.task),
            token: request.callback.token.clone(),
            inputs: texts(&request).collect(),
            key: env("EBB_IDEMPOTENCY_KEY"),
            undoes: env("EBB_UNDOES_IDEMPOTENCY_KEY"),
            by_relay: true,
            later: true,
            once: false,
            has_output: !script.outputs.is_empty(),
        };
        let reply = self.send(parcel.clone()).await;
        self.learned(match reply {
            Some(Ok(ModelTaskState::Running)) => {
                let begun = self.state().tasks.get(&parcel.name).map(|work| work.begun);
                let age_ms = begun.map(|begun| self.runtime.elapsed() - begun);
                Ok(TaskState::Running(RunningTask { age_ms, ..RunningTask::default() }))
            }
            Some(Ok(ModelTaskState::Waiting)) => Ok(TaskState::Queued { ahead: 0 }),
            Some(Ok(ModelTaskState::Tombstoned)) => Ok(TaskState::Tombstoned),
            Some(Ok(stand)) => Ok(TaskState::Ended(Box::new(callback(&parcel, stand)))),
            Some(Err(_)) | None => Err(RelayError::Unreachable("as planned".to_owned())),
        })
    }

    async fn cancel(&self, _: UnitCluster<'_>, name: &TaskId, _: Duration) -> Result<TaskState, RelayError> {
        self.end_work("cancel", name_of(name)).await
    }

    async fn dequeue(&self, _: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        match self.graph.slots {
            // Without slots, the relay has no queue.
            None => Ok(TaskState::Unknown),
            Some(_) => self.end_work("dequeue", name_of(name)).await,
        }
    }

    async fn get(&self, _: UnitCluster<'_>, name: &TaskId) -> Result<TaskState, RelayError> {
        Err(RelayError::Unreachable(format!("no request is open for {}", name.unit)))
    }

    async fn acknowledge(&self, _: UnitCluster<'_>, _: &TaskId) -> Result<(), RelayError> {
        Ok(())
    }

    async fn release(&self, _: UnitCluster<'_>, _: &str) -> Result<(), RelayError> {
        Ok(())
    }
}

impl ModelEnvironment {
    async fn end_work(&self, verb: &str, name: String) -> Result<TaskState, RelayError> {
        let fate = self.gates.wait(GateKind::Send, format!("{verb} {name}")).await;
        let no_answer = || Err(RelayError::Unreachable("as planned".to_owned()));
        if fate == WriteFate::Die {
            return no_answer();
        }
        let answer = {
            let mut state = self.state();
            match state.tasks.get(&name).map(|work| (work.state, work.request.clone())) {
                Some((stand @ (ModelTaskState::Succeeded | ModelTaskState::Failed), parcel)) => {
                    TaskState::Ended(Box::new(callback(&parcel, stand)))
                }
                Some((ModelTaskState::Running, _)) if verb == "dequeue" => TaskState::running(""),
                known => {
                    let parcel = known.map(|(_, parcel)| parcel).unwrap_or_else(|| UnitRequest {
                        name: name.clone(),
                        by_relay: true,
                        later: true,
                        ..UnitRequest::default()
                    });
                    tombstone(&mut state, &name, &parcel);
                    let begun = self.start_waiting(&mut state);
                    let stop = state.stop_begun;
                    for unit in begun.into_iter().filter(|unit| stop && is_setup(unit)) {
                        let killed = &parcel.unit;
                        state.violations.push(format!("{unit} begins in the place of {killed}, which the stop killed"));
                    }
                    TaskState::Tombstoned
                }
            }
        };
        self.learned(if fate == WriteFate::Proceed { Ok(answer) } else { no_answer() })
    }

    /// Receives a notification, as the server of the platform.
    async fn notify(&self, request: &HttpRequest) -> CallResult<HttpResponse> {
        let event: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let kind = event.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
        let generation = event.pointer("/data/generation").and_then(serde_json::Value::as_u64).unwrap_or_default();
        let fate = self.gates.wait(GateKind::Send, "notify".to_owned()).await;
        if fate != WriteFate::Die {
            self.state().notifications.insert((kind, generation));
        }
        self.learned(match fate {
            WriteFate::Proceed => Ok(HttpResponse::new(204, "")),
            WriteFate::Die | WriteFate::LoseResponse => Err(CallError::Connect("as planned".to_owned())),
        })
    }
}

#[async_trait]
impl HttpCall for ModelEnvironment {
    async fn call(&self, request: HttpRequest) -> CallResult<HttpResponse> {
        if request.url == PLATFORM {
            return self.notify(&request).await;
        }
        let header = |name: &str| header(&request, name);
        let unit = request.url.rsplit('/').next().unwrap_or_default().to_owned();
        let once = is_setup(&unit) && self.graph.once;
        let body: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&request.body).unwrap_or_default();
        let texts = body.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        let parcel = UnitRequest {
            unit,
            attempt: header(ATTEMPT).parse().unwrap_or(0),
            name: header(WEBHOOK_ID),
            token: header(CALLBACK_TOKEN),
            inputs: texts.collect(),
            key: header(IDEMPOTENCY_KEY),
            undoes: header(UNDOES_IDEMPOTENCY_KEY),
            by_relay: false,
            later: UnitAction::of_url(&request.url) == UnitAction::Later,
            once,
            has_output: true,
        };
        let reply = self.send(parcel.clone()).await;
        self.learned(match reply {
            Some(Ok(stand)) => {
                let status = match stand {
                    ModelTaskState::Running | ModelTaskState::Waiting => 202,
                    ModelTaskState::Succeeded => 200,
                    ModelTaskState::Failed | ModelTaskState::Tombstoned => 503,
                };
                Ok(HttpResponse::new(status, serde_json::to_vec(&outputs(&parcel)).expect("outputs are JSON")))
            }
            Some(Err(status)) => Ok(HttpResponse::new(status, "")),
            None => Err(CallError::Connect("as planned".to_owned())),
        })
    }
}

#[async_trait]
impl MessageQueue for ModelEnvironment {
    async fn send(&self, message: QueueMessage, delay: Duration) {
        // Without faults of the queue, only the time of the delivery matters.
        if self.loses_messages
            && self.gates.wait(GateKind::Queue, format!("{message:?}")).await == WriteFate::LoseResponse
        {
            return;
        }
        let not_before = self.runtime.elapsed() + u64::try_from(delay.as_millis()).expect("at most 15 minutes");
        let mut state = self.state();
        let number = state.number();
        state.deliveries.insert(number, PendingDelivery::Message { message, not_before });
    }
}
