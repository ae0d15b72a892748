//! The tail of a container's log.

use std::time::Duration;

use ebb_kube::podspec;
use ebb_protocol::TaskId;
use ebb_protocol::limits::{LOG_TAIL, RESPONSE_BODY};
use ebb_protocol::script::end_of;
use ebb_script::{LogMask, LogTail};
use futures::{AsyncRead, AsyncReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;

use crate::api_server::discovery::ResourceKind;
use crate::objects::{self, documents};
use crate::observe::blockers::{StartBlocker, millis_at};
use crate::{AppliedObject, ObjectRef, Reconciler, TaskSpec, names};

/// The timeout for a log. It is shorter than the timeout of a request for the state of a task.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines and bytes of the log of a pod that is not that of a script.
const OBJECT_LOG: (i64, usize) = (50, 16 << 10);
const ENTRYPOINT_PREFIX: &str = "ebb-entrypoint: ";

impl Reconciler {
    /// Returns the pods of a task's Job, the newest last.
    pub(crate) async fn pods(&self, spec: &TaskSpec) -> kube::Result<Vec<Value>> {
        let Some(job) = spec.manifests().next() else { return Ok(Vec::new()) };
        let namespace = job.object_ref.namespace.as_ref().unwrap_or(&spec.namespace);
        let labels = ListParams::default().labels(&format!("{}={}", names::JOB, job.uid));
        let mut pods = match self.read_all(&ResourceKind::pod(), namespace, &labels).await {
            Ok(pods) => pods,
            Err(error) => {
                let is_gone = self.is_namespace_missing(Some(namespace.as_str()), &error).await;
                return if is_gone { Ok(Vec::new()) } else { Err(error) };
            }
        };
        pods.retain(|pod| is_pod_of(pod, &job.uid));
        pods.sort_by_key(|pod| millis_at(&pod["metadata"]["creationTimestamp"]));
        Ok(pods)
    }

    /// Returns the end of a container's log, as far as it arrives within [`LOG_TIMEOUT`]. Returns an empty text if it
    /// cannot be read. Results and deadlines wait for this call, so a slow kubelet must not block them.
    pub(crate) async fn log(&self, pod: &Value, container: &str) -> String {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(pod));
        // The API limits a log by lines, or by bytes from its start. So many lines have at least so many bytes.
        let lines = i64::try_from(LOG_TAIL).ok();
        let what = LogParams { container: Some(container.to_owned()), tail_lines: lines, ..LogParams::default() };
        tail(api.log_stream(objects::name(pod), &what)).await.text(&LogMask::default())
    }

    /// Returns the last lines of the log of a container, or of its former run, with the values of all Secrets masked that
    /// its pod names.
    ///
    /// # Errors
    /// Returns the error of the API server if it does not return the log or a Secret.
    pub(crate) async fn masked_log(&self, pod: &Value, container: &str, is_former: bool) -> kube::Result<String> {
        let (namespace, mut values) = (objects::namespace(pod), Vec::new());
        for (_, _, name) in podspec::references(&pod["spec"], "").into_iter().filter(|(kind, ..)| *kind == "Secret") {
            let secret = self.read(&ObjectRef::secret(namespace, name)).await?.unwrap_or_default();
            let keys = secret["data"].as_object().into_iter().flatten().map(|(key, _)| key);
            values.extend(keys.filter_map(|key| documents::secret_bytes(&secret, key)));
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (lines, bytes) = OBJECT_LOG;
        let (container, tail_lines) = (Some(container.to_owned()), Some(lines));
        let what = LogParams { container, tail_lines, previous: is_former, ..LogParams::default() };
        let log =
            tail(std::future::ready(Ok::<_, kube::Error>(api.log_stream(objects::name(pod), &what).await?))).await;
        let log = log.text(&LogMask::new(values.into_iter()));
        Ok(end_of(script_part(&log).to_owned(), bytes))
    }

    /// Returns the end of a task's log, truncated to the size of a response. For a task without a script, that of a container
    /// that crashes, as far as it can be read within [`LOG_TIMEOUT`].
    pub(crate) async fn task_log(&self, name: &TaskId, spec: &TaskSpec) -> kube::Result<String> {
        let Some(container) = spec.container() else {
            let waits = self.registry.status(name).waits;
            if !waits.iter().any(|wait| wait.message.contains("CrashLoopBackOff")) {
                return Ok(String::new());
            }
            let log = tokio::time::timeout(LOG_TIMEOUT, Box::pin(self.crash_log(spec))).await;
            return Ok(log.ok().and_then(Result::ok).unwrap_or_default());
        };
        match self.pods(spec).await?.last() {
            Some(pod) => Ok(fit_response(script_part(&self.log(pod, container).await).to_owned())),
            None => Ok(String::new()),
        }
    }

    async fn crash_log(&self, spec: &TaskSpec) -> kube::Result<String> {
        for AppliedObject { object_ref, uid, .. } in spec.manifests() {
            let found = self.read(object_ref).await?.filter(|object| objects::uid(object) == uid);
            let Some(object) = found else { continue };
            if let Some((_, StartBlocker { log: Some((container, is_former)), .. }, Some(pod))) =
                self.explanation(&object).await?
            {
                return self.masked_log(&pod, &container, is_former).await;
            }
        }
        Ok(String::new())
    }
}

/// Returns the end of a log, as far as it arrives within [`LOG_TIMEOUT`].
async fn tail<S: AsyncRead, E>(open: impl Future<Output = Result<S, E>>) -> LogTail {
    let tail = LogTail::new(LOG_TAIL);
    let reading = async {
        let Ok(stream) = open.await else { return };
        futures::pin_mut!(stream);
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            tail.push(&piece[..count]);
        }
    };
    if tokio::time::timeout(LOG_TIMEOUT, reading).await.is_err() {
        let limit = LOG_TIMEOUT.as_secs();
        tail.push(format!("\n{ENTRYPOINT_PREFIX}the rest of the log did not arrive within {limit} s\n").as_bytes());
    }
    tail
}

/// Truncates a log to the size of a response. A control character takes six bytes in JSON.
fn fit_response(mut log: String) -> String {
    let size = |log: &str| serde_json::to_string(log).map_or(0, |json| json.len());
    while size(&log) > RESPONSE_BODY - 1024 {
        let most = log.len() / 2;
        log = end_of(log, most);
    }
    log
}

/// Returns true if a pod belongs to the Job with this UID. An orphaned pod has no owner and is matched by its label.
/// Labels alone prove nothing, because anyone can set them.
fn is_pod_of(pod: &Value, job: &str) -> bool {
    let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    match owners.find(|owner| owner["controller"] == true) {
        Some(owner) => owner["uid"] == job,
        None => pod["metadata"]["labels"][names::JOB] == job,
    }
}

/// Removes the lines of the entrypoint at the end of a log.
pub(crate) fn script_part(log: &str) -> &str {
    let mut rest = log;
    loop {
        let last = rest.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        if !rest[last..].starts_with(ENTRYPOINT_PREFIX) {
            return rest;
        }
        rest = &rest[..last];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn only_pods_of_the_job_are_read() {
        for (label, owners, expected) in rows::<(String, Vec<String>, bool)>("only_pods_of_the_job_are_read") {
            let owner = |uid: &String| serde_json::json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let pod = serde_json::json!({"metadata": {"labels": {names::JOB: label}, "ownerReferences": owners}});
            assert_eq!(is_pod_of(&pod, "u"), expected, "{pod}");
        }
    }

    #[tokio::test]
    async fn a_log_that_stalls_is_truncated() {
        let started = std::time::Instant::now();
        let stalled = futures::stream::pending();
        let piece = futures::stream::iter([Ok::<_, std::io::Error>("begun\n")]);
        let stalls = futures::StreamExt::chain(piece, stalled);
        let log = tail(async { Ok::<_, ()>(futures::TryStreamExt::into_async_read(stalls)) }).await;
        let log = log.text(&LogMask::default());
        let truncated = "begun\n\nebb-entrypoint: the rest of the log did not arrive within 2 s\n";
        assert_eq!((log.as_str(), script_part(&log)), (truncated, "begun\n\n"));
        // A log that never opens is empty.
        let unopened = futures::future::pending::<Result<futures::io::Empty, ()>>();
        assert_eq!(script_part(&tail(unopened).await.text(&LogMask::default())), "\n");
        let response_timeout = ebb_protocol::relay::SHORT_RESPONSE_TIMEOUT - ebb_protocol::relay::RESPONSE_MARGIN;
        assert!(started.elapsed() >= 2 * LOG_TIMEOUT && LOG_TIMEOUT < response_timeout);
    }

    #[test]
    fn lines_of_the_entrypoint_are_removed() {
        for (log, expected) in rows::<(String, String)>("lines_of_the_entrypoint_are_removed") {
            assert_eq!(script_part(&log), expected, "{log:?}");
        }
        // A log fits into a response.
        for (character, kept) in [("x", LOG_TAIL), ("\n", LOG_TAIL), ("\u{1}", LOG_TAIL / 2)] {
            assert_eq!(fit_response(character.repeat(LOG_TAIL)).len(), kept, "{character:?}");
        }
    }
}
