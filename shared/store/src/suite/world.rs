//! A table and a bucket for one test, and values to fill them with.

use std::sync::Arc;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use ebb_store::{Bucket, Dynamo, Meter, NewRun, RunFacts, Store, TargetHead, Transition};
use ebb_store::{MoveTarget as _, table};
use ebb_wire::engine::{Moment, TargetPhase, Timestamp};
use ebb_wire::id::RunId;
use ebb_wire::record::{Kept, TryResult, Verdict};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) meter: Arc<Meter>,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().unwrap()));
        let dynamodb = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(endpoint)
            .build();
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(dynamodb);
        table::create(&dynamodb, "ebb").await.unwrap();
        table::create(&dynamodb, "ebb").await.unwrap();

        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single("test", "test"));
        let s3 = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url("http://s3.test")
            .force_path_style(true)
            .http_client(s3s_aws::Client::from(service.build()))
            .build();
        let s3 = aws_sdk_s3::Client::from_conf(s3);
        s3.create_bucket().bucket("ebb").send().await.unwrap();

        let meter = Arc::new(Meter::new());
        let store = Store::new(Dynamo::new(dynamodb, "ebb"), Bucket::new(s3, "ebb"));
        Self { store: store.metered(Arc::clone(&meter)), meter, _folder: folder }
    }

    /// A run that has begun.
    pub(crate) async fn run(&self, name: &str) -> RunId {
        let run = new_run(name);
        let transition = Transition {
            target: target("sandbox", name),
            seen: None,
            run: Some(run.clone()),
            tombstone: None,
        };
        assert!(self.store.move_target(&transition).await.unwrap());
        run.id
    }
}

pub(crate) fn new_run(name: &str) -> NewRun {
    let id = RunId::new(&ebb_wire::id::life("sandbox", name, "u1"), 1, Moment::BeforeReady);
    let facts = RunFacts {
        kind: "sandbox".into(),
        name: name.into(),
        uid: "u1".into(),
        generation: 1,
        plan: ebb_wire::id::digest(b"plan"),
        routing_key: Some("rk".into()),
        started: Timestamp(1_800_000_000_000),
    };
    NewRun { id, facts, due: Timestamp(1_800_000_060_000) }
}

pub(crate) fn target(kind: &str, name: &str) -> TargetHead {
    TargetHead {
        kind: kind.into(),
        name: name.into(),
        uid: "u1".into(),
        generation: 1,
        phase: TargetPhase::Starting,
        moment: Some(Moment::BeforeReady),
        plan: ebb_wire::id::digest(b"plan"),
        routing_key: None,
        plugins: vec![],
        created: Timestamp(1_800_000_000_000),
        since: Timestamp(1_800_000_000_000),
        expires: None,
        tell: None,
        waiting: None,
        due: Some(Timestamp(1_800_000_060_000)),
        version: 1,
    }
}

pub(crate) fn result(verdict: Verdict, digest: &str) -> TryResult {
    TryResult {
        verdict,
        at: 1_800_000_001_000,
        took_ms: None,
        outputs: Kept::Nothing,
        reason: None,
        next: None,
        log: false,
        digest: ebb_wire::id::digest(digest.as_bytes()),
    }
}
