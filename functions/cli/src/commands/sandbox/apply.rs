//! `ebb sandbox apply`.

use std::path::PathBuf;
use std::time::Duration;

use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::LifecycleResult;

use super::WaitArg;
use crate::commands::connect;
use crate::documents::{SetArgs, TargetDocument};
use crate::exit::{Exit, Trouble};
use crate::lifecycle::{Wait, ask, fresh_uid, lives, wait};
use crate::output::{self, Output};
use crate::progress::follow::{Goal, Life};
use crate::server::ServerArgs;
use crate::target::KindArgs;
use crate::{timing, why};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The document; `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    wait: WaitArg,
    /// How long to wait
    #[arg(long, value_name = "TIME", value_parser = timing::parse, default_value = "3m")]
    wait_timeout: Duration,
    #[command(flatten)]
    output: Output,
}

impl Args {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, Trouble> {
        let document = TargetDocument::read(&self.file, &self.sets.vars()?)?;
        let client = connect(server)?;
        let target = document.target(self.kind.kind());
        let seen = client.target(&target).await?.filter(lives);
        let uid = seen.as_ref().map_or_else(fresh_uid, |seen| seen.info.uid.clone());
        let (asked, generation) = match &seen {
            Some(seen) => (Asked::Updated, seen.info.generation + 1),
            None => (Asked::Created, 1),
        };
        let mut life = Life { target, uid, generation };
        let answer = ask(&client, asked, &life, Some(document.expanded())).await?;
        let change = match (&seen, client.target(&life.target).await?) {
            // A document that asks for what is there changes nothing: the generation stays.
            (Some(_), Some(now)) if now.info.uid == life.uid && now.info.generation < life.generation => {
                life.generation = now.info.generation;
                "Unchanged"
            }
            (Some(_), _) => "Changed",
            (None, _) if answer.result == LifecycleResult::Waiting => "Queued",
            (None, _) => "Created",
        };
        output::tell(&format!("{change} {} (uid {}, generation {})", life.target, life.uid, life.generation));
        let exit = match self.wait.limit(self.wait_timeout) {
            Wait::No => Exit::Done,
            Wait::For(timeout) => wait(&client, &life, Goal::Ready, timeout).await?,
        };
        if exit == Exit::Done
            && let Some(seen) = client.target(&life.target).await?
        {
            self.output.write(&seen, |seen| {
                let resources = &seen.resources;
                why::output_lines(resources.iter().map(|(name, resource)| (name, &resource.outputs)))
            })?;
        }
        Ok(exit)
    }
}
