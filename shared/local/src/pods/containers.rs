//! What runs containers on this machine: Docker's API, as Docker and Podman serve it.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bollard::container::AttachContainerResults;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerStateStatusEnum, HostConfig, HostConfigLogConfig};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, CreateImageOptionsBuilder,
    KillContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use bollard::{Docker, body_full};
use ebb_wire::id::short_digest;
use ebb_wire::runner::PROGRAM;
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};

use super::work::Work;

/// The folder of runner, spec and script in a container.
pub(super) const FOLDER: &str = "/ebb";
/// The runner's spec, below [`FOLDER`].
const SPEC: &str = "spec.json";
/// Labels: whose container it is, and of which work.
const STATE: &str = "dev.ebb.state";
const WORK: &str = "dev.ebb.work";

/// How scripts are run as containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containers {
    /// Where the API is served, such as `unix:///var/run/docker.sock`.
    pub host: String,
    /// The runner, a static program (`cargo xtask build runner`) that is copied into every container.
    pub runner: PathBuf,
}

/// The connection to it.
pub(super) struct Engine(Docker);

/// Where a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Runs,
    Ended { exit_code: i64, out_of_memory: bool },
    Gone,
}

impl Containers {
    pub(super) async fn connect(&self) -> Result<Engine, Error> {
        Ok(Engine(Docker::connect_with_host(&self.host)?.negotiate_version().await?))
    }

    /// Removes the container of a work, running or not.
    pub(super) async fn remove(&self, work: &Work) -> Result<(), Error> {
        self.connect().await?.remove(&name(work)).await
    }

    /// Removes the containers of `state` whose work is over: what somebody who was killed has left.
    pub(super) async fn sweep(&self, state: &Path) -> Result<(), Error> {
        let engine = self.connect().await?;
        let filters = HashMap::from([("label".to_owned(), vec![format!("{STATE}={}", digest(state))])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        for container in engine.0.list_containers(Some(options)).await? {
            let Some(folder) = container.labels.unwrap_or_default().remove(WORK) else { continue };
            let work = Work { folder: state.join("pods").join(folder) };
            // One that cannot be looked at is not over.
            if !work.is_held().unwrap_or(true) {
                engine.remove(&container.id.unwrap_or_default()).await?;
            }
        }
        Ok(())
    }
}

fn digest(state: &Path) -> String {
    short_digest(&[&state.to_string_lossy()], 16)
}

/// `UNIT/ATTEMPT`.
fn key(work: &Work) -> String {
    let mut parts: Vec<_> = work.folder.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    parts.join("/")
}

/// The name of a work's container: one engine may serve several states.
pub(super) fn name(work: &Work) -> String {
    let state = work.folder.ancestors().nth(3).unwrap_or(Path::new("/"));
    format!("ebb-{}-{}", digest(state), key(work).replace('/', "-"))
}

/// Whether the engine says that there is no such thing.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

impl Engine {
    /// Makes the container of a work, with the runner and its spec in it; it does not run yet.
    pub(super) async fn create(
        &self,
        work: &Work,
        image: &str,
        runner: &[u8],
        spec: &[u8],
    ) -> Result<(), Error> {
        let (name, state) = (name(work), work.folder.ancestors().nth(3).unwrap_or(Path::new("/")));
        let labels = HashMap::from([(STATE.to_owned(), digest(state)), (WORK.to_owned(), key(work))]);
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec![format!("{FOLDER}/{PROGRAM}")]),
            cmd: Some(["run", "--spec", &format!("{FOLDER}/{SPEC}")].map(str::to_owned).into()),
            labels: Some(labels),
            host_config: Some(HostConfig {
                // As for processes: servers of this machine are where they are, our S3 and the runner's reports too.
                network_mode: Some("host".to_owned()),
                // We keep the log.
                log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        self.0.create_container(Some(options), body).await?;
        let archive = archive(runner, spec).map_err(|err| Error::IOError { err })?;
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        self.0.upload_to_container(&name, Some(options), body_full(archive.into())).await
    }

    pub(super) async fn pull(&self, image: &str) -> Result<(), Error> {
        let options = CreateImageOptionsBuilder::default().from_image(image).build();
        self.0.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) }).await
    }

    /// What it prints from its start on.
    pub(super) async fn attach(&self, name: &str) -> Result<AttachContainerResults, Error> {
        let options = AttachContainerOptionsBuilder::default().stdout(true).stderr(true).stream(true).build();
        self.0.attach_container(name, Some(options)).await
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), Error> {
        self.0.start_container(name, None).await
    }

    pub(super) async fn look(&self, name: &str) -> Result<Sight, Error> {
        let state = match self.0.inspect_container(name, None).await {
            Ok(found) => found.state.unwrap_or_default(),
            Err(error) if is_missing(&error) => return Ok(Sight::Gone),
            Err(error) => return Err(error),
        };
        Ok(match state.status {
            Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD) => Sight::Ended {
                exit_code: state.exit_code.unwrap_or(-1),
                out_of_memory: state.oom_killed.unwrap_or(false),
            },
            _ => Sight::Runs,
        })
    }

    /// Asks it to end.
    pub(super) async fn terminate(&self, name: &str) -> Result<(), Error> {
        let options = KillContainerOptionsBuilder::default().signal("SIGTERM").build();
        self.0.kill_container(name, Some(options)).await
    }

    /// Kills and removes it; one that is not there is none.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.0.remove_container(name, Some(options)).await {
            Err(error) if is_missing(&error) => Ok(()),
            done => done,
        }
    }
}

/// What is put into a container, as tar. The folder is everybody's: images run as whom they like.
fn archive(runner: &[u8], spec: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let folder = FOLDER.trim_start_matches('/');
    let mut add = |path: String, kind: tar::EntryType, mode: u32, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes)
    };
    add(format!("{folder}/"), tar::EntryType::Directory, 0o1777, b"")?;
    add(format!("{folder}/{PROGRAM}"), tar::EntryType::Regular, 0o755, runner)?;
    add(format!("{folder}/{SPEC}"), tar::EntryType::Regular, 0o444, spec)?;
    let mut bytes = archive.into_inner()?;
    bytes.flush()?;
    Ok(bytes)
}
