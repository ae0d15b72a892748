//! Servers in place of Docker Hub and AWS, for documents of Signadot in a cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::prelude::*;
use crate::receiver::{CannedReply, TestReceiver};

/// A registry from which the cluster pulls the images of Docker Hub until it is dropped.
pub(crate) struct ImageRegistry {
    hosts: PathBuf,
    server: JoinHandle<()>,
    _images: TempDir,
}

impl ImageRegistry {
    pub(crate) async fn start(cluster: &TestCluster) -> Self {
        let images = tempfile::tempdir().unwrap();
        let folder = images.path().to_owned();
        let write = move || xtask(&["cluster", "registry", folder.to_str().unwrap()]);
        tokio::task::spawn_blocking(write).await.unwrap();
        let listener = TcpListener::bind((&*cluster.host, 0)).await.unwrap();
        let hosts = cluster.kubeconfig.parent().unwrap().join("etc/registries/docker.io");
        fs::create_dir_all(&hosts).unwrap();
        let host = format!("[host.\"http://{}\"]\n", listener.local_addr().unwrap());
        fs::write(hosts.join("hosts.toml"), host).unwrap();
        let router = Router::new().fallback(serve).with_state(images.path().to_owned());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { hosts, server, _images: images }
    }
}

impl Drop for ImageRegistry {
    fn drop(&mut self) {
        self.server.abort();
        let _ = fs::remove_dir_all(&self.hosts);
    }
}

async fn serve(State(images): State<PathBuf>, uri: Uri) -> Response {
    let is_manifest = uri.path().contains("/manifests/");
    let kind = if is_manifest { "application/vnd.oci.image.manifest.v1+json" } else { "application/octet-stream" };
    match tokio::fs::read(images.join(uri.path().trim_start_matches('/'))).await {
        Ok(bytes) => ([(CONTENT_TYPE, kind)], bytes).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The operations of SQS and S3 that the scripts use.
pub(crate) struct AwsServer {
    pub(crate) receiver: TestReceiver,
    /// Queues by their URL, and objects of the bucket `states` by their path.
    things: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl AwsServer {
    pub(crate) async fn start(cluster: &TestCluster) -> Self {
        let receiver = TestReceiver::start_at(cluster.host.parse().unwrap(), |_, _| Ok(())).await;
        let things: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let (queues, url) = (Arc::clone(&things), receiver.url().to_owned());
        receiver.on("POST /", move |call, _| {
            let mut queues = queues.lock().unwrap();
            if call.header("x-amz-target") == "AmazonSQS.CreateQueue" {
                let url = format!("{url}/{}", call.body["QueueName"].as_str().unwrap());
                queues.insert(url.clone(), call.body.clone());
                return CannedReply::ok(json!({"QueueUrl": url}));
            }
            let deleted = call.body["QueueUrl"].as_str().and_then(|url| queues.remove(url));
            CannedReply::status(if deleted.is_some() { 200 } else { 400 })
        });
        receiver.always("GET /states", CannedReply::text(200, "text/xml", "<ListBucketResult/>"));
        // A state of Terraform is JSON.
        let objects = Arc::clone(&things);
        receiver.on("PUT /states/*", move |call, _| {
            objects.lock().unwrap().insert(call.path().to_owned(), call.body.clone());
            CannedReply::status(200)
        });
        for method in ["GET", "HEAD"] {
            let objects = Arc::clone(&things);
            receiver.on(&format!("{method} /states/*"), move |call, _| {
                let missing = CannedReply::text(404, "text/xml", "<Error><Code>NoSuchKey</Code></Error>");
                objects.lock().unwrap().get(call.path()).map_or(missing, |object| CannedReply::ok(object.clone()))
            });
        }
        Self { receiver, things }
    }

    /// Returns the files of the folder `.aws`.
    pub(crate) fn settings(&self) -> Value {
        json!({
            "config": format!("[default]\nregion = us-west-2\nendpoint_url = {}\n", self.receiver.url()),
            "credentials": "[default]\naws_access_key_id = a\naws_secret_access_key = b\n",
        })
    }

    /// Checks that there are a queue and a state with a resource.
    pub(crate) fn assert_used(&self) {
        let things = self.things.lock().unwrap();
        let is_queue = |thing: &Value| thing["QueueName"].is_string();
        let has_resource = |thing: &Value| thing["resources"].as_array().is_some_and(|all| !all.is_empty());
        assert!(things.values().any(is_queue) && things.values().any(has_resource), "{things:?}");
    }

    /// Checks that there is no queue, and no state has a resource.
    pub(crate) fn assert_empty(&self) {
        let things = self.things.lock().unwrap();
        assert!(things.values().all(|thing| thing["resources"] == json!([])), "{things:?}");
    }
}
