//! `ebb sandbox apply`.

use std::path::PathBuf;
use std::time::Duration;

use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::LifecycleResult;

use super::WaitArg;
use crate::client::{Client, Seen};
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
        let seen = client.target(&target).await?;
        let (life, asked) = match seen.as_ref().filter(|seen| lives(seen)) {
            Some(seen) => {
                let info = &seen.detail.info;
                let generation = match unchanged(&client, seen, &document).await? {
                    Change::None => info.generation,
                    Change::Possible => info.generation + 1,
                };
                (Life { target, uid: info.uid.clone(), generation }, Asked::Updated)
            }
            None => (Life { target, uid: fresh_uid(), generation: 1 }, Asked::Created),
        };
        let answer = ask(&client, asked, &life, Some(document.expanded())).await?;
        let word = match (asked, answer.result) {
            (_, LifecycleResult::Waiting) => "Queued",
            (Asked::Created, _) => "Created",
            _ => "Applied",
        };
        output::tell(&format!("{word} {} with uid {}, generation {}", life.target, life.uid, life.generation));
        let exit = match self.wait.limit(self.wait_timeout) {
            Wait::No => Exit::Done,
            Wait::For(timeout) => wait(&client, &life, Goal::Ready, timeout).await?,
        };
        if exit == Exit::Done
            && let Some(seen) = client.target(&life.target).await?
        {
            self.output.write(&seen, |seen| {
                let resources = &seen.detail.resources;
                why::output_lines(resources.iter().map(|(name, resource)| (name, &resource.outputs)))
            })?;
        }
        Ok(exit)
    }
}

/// Whether a document asks for something else than what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Possible,
}

async fn unchanged(client: &Client, seen: &Seen, document: &TargetDocument) -> Result<Change, Trouble> {
    let Some(plan) = &seen.plan else { return Ok(Change::Possible) };
    let preview = client.preview(document.expanded()).await?;
    Ok(if preview.digest == *plan { Change::None } else { Change::Possible })
}
