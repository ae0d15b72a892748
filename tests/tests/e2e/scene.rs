//! The examples as something that is made and taken away: who says what there is.

use std::fs;

use ebb_protocol::api::TargetDetail;
use ebb_protocol::lifecycle::OutputValue;
use tempfile::TempDir;

use crate::example_service::ExampleService;
use crate::server::{self, PostgresServer, USER};
use crate::workdir::{Workdir, example, shared_folder};
use crate::{s3, wired};

/// An example, with what all its instances share.
pub(crate) enum ExampleKind {
    S3,
    Postgres(PostgresServer),
    Webhooks,
    Wired,
}

impl ExampleKind {
    pub(crate) async fn postgres() -> Self {
        Self::Postgres(PostgresServer::start().await)
    }

    /// The name of its folder.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Postgres(_) => "postgres",
            Self::Webhooks => "webhooks",
            Self::Wired => "wired",
        }
    }
}

/// What there is besides buckets, which are the server's.
enum ExampleObjects<'a> {
    Buckets,
    Databases(&'a PostgresServer),
    Services(ExampleService),
    Folder(TempDir),
}

/// One instance of an example.
pub(crate) struct ExampleRun<'a> {
    pub(crate) sandbox: &'static str,
    pub(crate) document: String,
    things: ExampleObjects<'a>,
}

impl<'a> ExampleRun<'a> {
    /// Publishes the example's plugins to the server of `place`.
    pub(crate) async fn new(of: &'a ExampleKind, place: &Workdir) -> Self {
        let (sandbox, things, plugins): (_, _, &[&str]) = match of {
            ExampleKind::S3 => (s3::SANDBOX, ExampleObjects::Buckets, &["plugin.yaml"]),
            ExampleKind::Postgres(server) => (server::SANDBOX, ExampleObjects::Databases(server), &["plugin.yaml"]),
            ExampleKind::Webhooks => {
                let receiver = ExampleService::start(place.state().join("keys.json")).await;
                ("search-pr-9", ExampleObjects::Services(receiver), &["plugin.yaml"])
            }
            ExampleKind::Wired => {
                (wired::SANDBOX, ExampleObjects::Folder(shared_folder()), &["store.yaml", "tenant.yaml"])
            }
        };
        let values: Vec<(&str, String)> = match &things {
            ExampleObjects::Buckets => vec![],
            ExampleObjects::Databases(server) => {
                vec![("host", "127.0.0.1".to_owned()), ("port", server.port.to_string()), ("user", USER.to_owned())]
            }
            ExampleObjects::Services(receiver) => vec![("receiver", receiver.url().to_owned())],
            ExampleObjects::Folder(root) => vec![("root", root.path().to_str().unwrap().to_owned())],
        };
        let file = |name: &str| example(&format!("{}/{name}", of.name()));
        for plugin in plugins {
            let set = values.iter().find(|(name, _)| *name == "receiver");
            let set = set.map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]);
            let plugin = file(plugin);
            let mut arguments = vec!["plugin", "apply", "-f", &plugin];
            arguments.extend(set.iter().flatten().map(String::as_str));
            place.ebb(&arguments).await.done();
        }
        let document = fs::read_to_string(file("sandbox.yaml")).unwrap();
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("@{{{name}}}"), value);
        Self { sandbox, document: values.iter().fold(document, fill), things }
    }

    /// That exactly one of each was made, with everything in it.
    pub(crate) async fn made(&self, s3: &str, seen: &TargetDetail) {
        match &self.things {
            ExampleObjects::Buckets => s3::holds_the_seed(s3, output(seen, "files", "provision.bucket-name")).await,
            ExampleObjects::Databases(server) => server.holds_the_seed(output(seen, "db", "provision.dbname")),
            ExampleObjects::Services(receiver) => receiver.each_was_made_once(),
            ExampleObjects::Folder(root) => {
                let settings = output(seen, "users", "settings");
                assert_eq!(settings, root.path().join(wired::SETTINGS).to_str().unwrap());
                assert_eq!(fs::read_to_string(settings).unwrap(), "greeting = \"good evening\"\n");
                assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
            }
        }
    }

    pub(crate) async fn nothing_left(&self, s3: &str) {
        let left = match &self.things {
            ExampleObjects::Buckets => s3::buckets(s3).await,
            ExampleObjects::Databases(server) => server.databases(),
            ExampleObjects::Services(receiver) => {
                receiver.each_was_made_once();
                receiver.left()
            }
            ExampleObjects::Folder(root) => {
                let names = fs::read_dir(root.path()).unwrap();
                names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            }
        };
        assert_eq!(left, [""; 0]);
    }
}

/// An output of a resource, which is text.
pub(crate) fn output<'a>(seen: &'a TargetDetail, resource: &str, output: &str) -> &'a str {
    match &seen.resources[resource].outputs[output] {
        OutputValue::Value(value) => value.as_str().unwrap(),
        other => panic!("{other:?}"),
    }
}
