//! `ebb sandbox delete`.

use std::path::PathBuf;
use std::time::Duration;

use ebb_wire::api::Phase;
use ebb_wire::cloudevents::Asked;

use super::WaitArg;
use crate::commands::{connect, unknown};
use crate::documents::{SetArgs, TargetDocument};
use crate::exit::{Exit, Trouble};
use crate::lifecycle::{Wait, ask, wait};
use crate::output;
use crate::progress::follow::{Goal, Life};
use crate::server::ServerArgs;
use crate::target::{KindArgs, Target};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    wait: WaitArg,
    /// How long to wait
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "5m")]
    wait_timeout: Duration,
}

impl Args {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, Trouble> {
        let target = self.target()?;
        let client = connect(server)?;
        let seen = client.target(&target).await?.ok_or_else(|| unknown(&target))?;
        let info = &seen.info;
        if let Some(uid) = &seen.waiting {
            // Otherwise it would begin as soon as the other one is gone.
            let waiting = Life { target: target.clone(), uid: uid.clone(), generation: 1 };
            ask(&client, Asked::Deleted, &waiting, None).await?;
        }
        if info.phase == Phase::Gone {
            output::tell(&format!("{target} is gone since {}", timing::clock(&info.since)));
            return Ok(Exit::Done);
        }
        let life = Life { target, uid: info.uid.clone(), generation: info.generation };
        ask(&client, Asked::Deleted, &life, None).await?;
        let exit = match self.wait.limit(self.wait_timeout) {
            Wait::No => {
                output::tell(&format!("{} is being deleted", life.target));
                Exit::Done
            }
            Wait::For(timeout) => wait(&client, &life, Goal::Gone, timeout).await?,
        };
        Ok(exit)
    }

    fn target(&self) -> Result<Target, Trouble> {
        match (&self.name, &self.file) {
            (Some(name), _) if self.sets.is_empty() => {
                Ok(Target { kind: self.kind.kind().to_owned(), name: name.clone() })
            }
            (Some(_), _) => Err(Trouble::broken("--set says something of a document: give one with -f")),
            (None, Some(file)) => {
                Ok(TargetDocument::read(file, &self.sets.vars()?)?.target(self.kind.kind()))
            }
            (None, None) => Err(Trouble::broken("which one? give its name, or its document with -f")),
        }
    }
}
