//! Examples of the repository, and checks of the resources that they create and delete.

use std::convert::Infallible;
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use ebb_protocol::api::TargetDetail;
use ebb_protocol::lifecycle::OutputValue;
use tempfile::TempDir;

use crate::example_service::ExampleService;
use crate::kill::{KillWorld, kill_each, seed};
use crate::postgres_server::{self, PostgresServer, USER};
use crate::workdir::{Workdir, example, shared_folder};
use crate::{s3, wired};

/// Number of kills of the example on the embedded table.
const EMBEDDED_KILLS: usize = 6;

#[derive(Clone, Copy)]
pub(crate) enum ExampleKind {
    S3,
    Postgres,
    Webhooks,
    Wired,
}

impl ExampleKind {
    /// Returns the name of the example's folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Postgres => "postgres",
            Self::Webhooks => "webhooks",
            Self::Wired => "wired",
        }
    }
}

/// The system that has the resources of an example. Buckets are those of `ebb dev`.
enum ResourceSystem {
    Buckets,
    Databases(PostgresServer),
    Services(ExampleService),
    Folder(TempDir),
}

/// An example on the server of a working directory.
pub(crate) struct ExampleRun {
    sandbox: &'static str,
    document: String,
    system: ResourceSystem,
    workdir: Workdir,
}

impl ExampleRun {
    /// Starts the system of the example, and publishes its plugins to the running server.
    pub(crate) async fn new(kind: ExampleKind, workdir: Workdir) -> Self {
        let (sandbox, system, plugins): (_, _, &[&str]) = match kind {
            ExampleKind::S3 => (s3::SANDBOX, ResourceSystem::Buckets, &["plugin.yaml"]),
            ExampleKind::Postgres => {
                (postgres_server::SANDBOX, ResourceSystem::Databases(PostgresServer::start().await), &["plugin.yaml"])
            }
            ExampleKind::Webhooks => {
                let keys = workdir.state().join("keys.json");
                let receiver = ExampleService::start(Ipv4Addr::LOCALHOST, keys, "tenant-services").await;
                ("search-pr-9", ResourceSystem::Services(receiver), &["plugin.yaml"])
            }
            ExampleKind::Wired => {
                (wired::SANDBOX, ResourceSystem::Folder(shared_folder()), &["store.yaml", "tenant.yaml"])
            }
        };
        let values: Vec<(&str, String)> = match &system {
            ResourceSystem::Buckets => vec![],
            ResourceSystem::Databases(server) => {
                vec![("host", "127.0.0.1".to_owned()), ("port", server.port.to_string()), ("user", USER.to_owned())]
            }
            ResourceSystem::Services(receiver) => vec![("receiver", receiver.url().to_owned())],
            ResourceSystem::Folder(root) => vec![("root", root.path().to_str().unwrap().to_owned())],
        };
        let file = |name: &str| example(&format!("{}/{name}", kind.name()));
        for plugin in plugins {
            let set = values.iter().find(|(name, _)| *name == "receiver");
            let set = set.map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]);
            let plugin = file(plugin);
            let mut arguments = vec!["apply", "-f", &plugin];
            arguments.extend(set.iter().flatten().map(String::as_str));
            workdir.ebb(&arguments).await.done();
        }
        let document = fs::read_to_string(file("sandbox.yaml")).unwrap();
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("@{{{name}}}"), value);
        Self { sandbox, document: values.iter().fold(document, fill), system, workdir }
    }
}

impl KillWorld for ExampleRun {
    type Part = Infallible;
    const MAX_PAUSE: Duration = Duration::from_millis(200);

    fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    /// An update replaces a database.
    fn begin(&self) -> (String, String, Option<String>) {
        if let ResourceSystem::Services(receiver) = &self.system {
            receiver.clear();
        }
        let has_databases = matches!(self.system, ResourceSystem::Databases(_));
        let changed = has_databases.then(|| self.document.replace("127.0.0.1", "localhost"));
        (self.sandbox.to_owned(), self.document.clone(), changed)
    }

    async fn kill(&self, part: Infallible) -> bool {
        match part {}
    }

    async fn assert_created(&self, s3: &str, target: &TargetDetail) {
        match &self.system {
            ResourceSystem::Buckets => s3::assert_seeded(s3, output(target, "files", "provision.bucket-name")).await,
            ResourceSystem::Databases(server) => server.assert_seeded(output(target, "db", "provision.dbname")),
            ResourceSystem::Services(receiver) => receiver.assert_each_created_once(),
            ResourceSystem::Folder(root) => {
                let settings = output(target, "users", "settings");
                assert_eq!(settings, root.path().join(wired::SETTINGS).to_str().unwrap());
                assert_eq!(fs::read_to_string(settings).unwrap(), "greeting = \"good evening\"\n");
                assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
            }
        }
    }

    async fn assert_nothing_remains(&self, s3: &str, _: &TargetDetail, _: &[Option<Infallible>]) {
        let remaining = match &self.system {
            ResourceSystem::Buckets => s3::buckets(s3).await,
            ResourceSystem::Databases(server) => server.databases(),
            ResourceSystem::Services(receiver) => {
                receiver.assert_each_created_once();
                receiver.remaining()
            }
            ResourceSystem::Folder(root) => {
                let names = fs::read_dir(root.path()).unwrap();
                names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            }
        };
        assert_eq!(remaining, [""; 0]);
        self.workdir.no_script_runs().await;
    }
}

/// Returns an output of a resource. Panics if the output is not text.
pub(crate) fn output<'a>(target: &'a TargetDetail, resource: &str, output: &str) -> &'a str {
    match &target.resources[resource].outputs[output] {
        OutputValue::Value(value) => value.as_str().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Kills `ebb dev` while it runs instances of an example.
pub(crate) async fn kill_example(example: ExampleKind, workdir: Workdir, kills: usize, seed: u64) {
    let dev = workdir.dev().await;
    let world = ExampleRun::new(example, workdir).await;
    kill_each(example.name(), &world, dev, vec![None; kills], 1, seed).await;
}

#[tokio::test]
async fn the_s3_example_is_killed() {
    kill_example(ExampleKind::S3, Workdir::new(), EMBEDDED_KILLS, seed()).await;
}
