//! `ebb sandbox delete`.

use std::path::PathBuf;
use std::time::Duration;

use ebb_protocol::api::TargetState;
use ebb_protocol::cloudevents::LifecycleType;

use super::WaitArgs;
use crate::commands::{connect, unknown};
use crate::documents::{SetArgs, TargetDocument};
use crate::exit::{CliError, Exit};
use crate::lifecycle::{WaitLimit, request, wait};
use crate::output;
use crate::progress::follow::{FollowGoal, WatchedInstance};
use crate::server::ServerArgs;
use crate::target::{KindArgs, TargetRef};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct SandboxDeleteArgs {
    /// Its name
    #[arg(value_name = "NAME", required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// Its document; `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// How long to wait
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "5m")]
    wait_timeout: Duration,
}

impl SandboxDeleteArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let target = self.target()?;
        let client = connect(server)?;
        let seen = client.target(&target).await?.ok_or_else(|| unknown(&target))?;
        let info = &seen.info;
        if let Some(uid) = &seen.waiting_uid {
            // Otherwise it would begin as soon as the other one is gone.
            let waiting = WatchedInstance { target: target.clone(), uid: uid.clone(), generation: 1 };
            request(&client, LifecycleType::Deleted, &waiting, None).await?;
        }
        if info.phase == TargetState::Gone {
            output::status_line(&format!("{target} is gone since {}", timing::clock(&info.since)));
            return Ok(Exit::Done);
        }
        let life = WatchedInstance { target, uid: info.uid.clone(), generation: info.generation };
        request(&client, LifecycleType::Deleted, &life, None).await?;
        let exit = match self.wait.limit(self.wait_timeout) {
            WaitLimit::No => {
                output::status_line(&format!("{} is being deleted", life.target));
                Exit::Done
            }
            WaitLimit::For(timeout) => wait(&client, &life, FollowGoal::Gone, timeout).await?,
        };
        Ok(exit)
    }

    fn target(&self) -> Result<TargetRef, CliError> {
        match (&self.name, &self.file) {
            (Some(name), _) if self.sets.is_empty() => {
                Ok(TargetRef { kind: self.kind.kind().to_owned(), name: name.clone() })
            }
            (Some(_), _) => Err(CliError::broken("--set says something of a document: give one with -f")),
            (None, Some(file)) => {
                Ok(TargetDocument::read(file, &self.sets.vars()?)?.target(self.kind.kind()))
            }
            (None, None) => Err(CliError::broken("which one? give its name, or its document with -f")),
        }
    }
}
