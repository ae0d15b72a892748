//! Explains why the API server refuses access to an object: its namespace may be gone, with the rights in it.

use ebb_protocol::relay::TaskWait;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;

use crate::objects::names_object;
use crate::{Reconciler, TaskRecord, error_message, status, task_waits};

impl Reconciler {
    pub(crate) async fn read_namespace(&self, namespace: &str) -> kube::Result<Option<Namespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.get(namespace).await {
            // Another 404 would not be about the namespace.
            Err(error) if status(&error) == Some(404) && names_object(&error, namespace) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns true if an error is a refusal, and the namespace does not exist. All its objects are gone then.
    pub(crate) async fn is_namespace_missing(&self, namespace: Option<&str>, error: &kube::Error) -> bool {
        match namespace.filter(|_| matches!(status(error), Some(403 | 404))) {
            Some(namespace) => matches!(self.read_namespace(namespace).await, Ok(None)),
            None => false,
        }
    }

    /// Returns why the objects of a namespace cannot be reached, if that is known.
    pub(crate) async fn namespace_problem(&self, namespace: &str) -> Option<String> {
        match self.read_namespace(namespace).await {
            Ok(None) => Some(format!(
                "the namespace `{namespace}` does not exist (any more); the operator of the cluster can create it again \
                 with the rights of the relay: ebb cluster connect {} --apply",
                self.settings.cluster
            )),
            Ok(Some(found)) if found.metadata.deletion_timestamp.is_some() => {
                Some(format!("the namespace `{namespace}` is being deleted"))
            }
            // It exists, or the relay may not read it.
            _ => None,
        }
    }

    /// Returns the message of an error about an object in a namespace, or the better one about the namespace.
    pub(crate) async fn explain_error(&self, namespace: Option<&str>, error: &kube::Error) -> String {
        let problem = match namespace.filter(|_| matches!(status(error), Some(403 | 404))) {
            Some(namespace) => self.namespace_problem(namespace).await,
            None => None,
        };
        problem.unwrap_or_else(|| error_message(error))
    }

    /// Returns the wait for an object after an error, or the error itself if the API server did not respond.
    pub(crate) async fn explain_refusal(
        &self,
        object: impl std::fmt::Display,
        namespace: Option<&str>,
        error: kube::Error,
    ) -> kube::Result<TaskWait> {
        if status(&error).is_none() {
            return Err(error);
        }
        Ok(task_waits::refusal(object, &error, &self.explain_error(namespace, &error).await))
    }

    /// Records a refusal as what a task waits for. Returns its explanation.
    pub(crate) async fn record_refusal(&self, record: &TaskRecord, error: &kube::Error) -> String {
        let applied = record.applied();
        let next = record.spec.as_ref().and_then(|spec| spec.object_refs().nth(applied.len()));
        let object = next.as_ref().map(|(next, _)| next).or_else(|| applied.last().map(|last| &last.object_ref));
        let default = record.spec.as_ref().map(|spec| spec.namespace.as_str());
        let why = self.explain_error(object.map_or(default, |it| it.namespace.as_deref()), error).await;
        if status(error).is_some() {
            let object = object.map_or_else(|| "an object of the task".to_owned(), ToString::to_string);
            self.registry.record_waits(&record.name, vec![task_waits::refusal(object, error, &why)]);
        }
        why
    }
}
