//! `ebb source test`: shows the effect of an event on a source.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ebb_documents::event::{EventExplanation, EventInput, EventOutcome, SkippedEntry};
use ebb_documents::{DocumentVars, EventSource, compile, load};
use serde::Serialize;

use crate::{CliError, DocumentSource, Exit, OutputArgs, Result, SetArgs, documents};

#[derive(Debug, clap::Args)]
pub(crate) struct SourceTestArgs {
    /// File with the source; `-` reads standard input
    file: PathBuf,
    /// File with the JSON body of an event; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// File with the JSON body of the response that completes the event, for a source with `fetch`
    #[arg(long, value_name = "FILE")]
    fetched: Option<PathBuf>,
    /// Header of the event, also as `NAME: VALUE`; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The effect of an event, for `-o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventEffect {
    source: String,
    /// The number of the entry that holds, from 1.
    entry: Option<usize>,
    skipped: Vec<SkippedEntry>,
    delivery_id: Option<String>,
    #[serde(flatten)]
    outcome: EventOutcome,
    /// The entries up to the one that holds, as text.
    #[serde(skip)]
    entries: Vec<String>,
}

impl SourceTestArgs {
    pub(crate) fn run(self) -> Result<Exit> {
        let source = checked(&DocumentSource::read(&self.file)?, &self.sets.vars()?)?;
        let fetched = match &self.fetched {
            Some(file) => Some(serde_json::json!({"status": 200, "body": payload(file)?})),
            None => None,
        };
        let input = EventInput { headers: headers(&self.headers)?, body: payload(&self.payload)?, fetched };
        let failed = |error: &(dyn std::error::Error + 'static)| CliError::failed(error.to_string());
        if let Some(request) = source.fetch(&input).map_err(|error| failed(&error))?
            && input.fetched.is_none()
        {
            let text = format!("the source completes the event by GET {} with {}", request.path, request.connection);
            return Err(CliError::failed(text).with_hint("give the body of its response: --fetched FILE"));
        }
        let delivery_id = source.delivery_id(&input).map_err(|error| failed(&error))?;
        let EventExplanation { skipped, entry, outcome } = source.explain(&input);
        let outcome = outcome.map_err(|error| failed(&error))?;
        let entries = (1..=skipped.len() + 1).map(|number| source.described(number)).collect();
        let effect = EventEffect { source: source.name.clone(), entry, skipped, delivery_id, outcome, entries };
        self.output.write(&effect, text)
    }
}

/// Loads the source of a file, and prints warnings.
pub(super) fn checked(file: &DocumentSource, vars: &DocumentVars) -> Result<EventSource> {
    let document = load::event_source(&file.name, &file.text, &file.folder, vars)?;
    let (source, warnings) = compile::event_source(&document)?;
    documents::warn(warnings.iter());
    Ok(source)
}

/// Parses headers. Names become lower case, and the first value of a name is kept.
pub(super) fn headers(texts: &[String]) -> Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for text in texts {
        let Some((name, value)) = text.split_once(['=', ':']) else {
            return Err(CliError::broken(format!("`{text}` is not a header")).with_hint("write --header NAME=VALUE"));
        };
        headers.entry(name.trim().to_ascii_lowercase()).or_insert_with(|| value.trim().to_owned());
    }
    Ok(headers)
}

fn payload(path: &Path) -> Result<serde_json::Value> {
    let source = DocumentSource::read(path)?;
    serde_json::from_str(&source.text).map_err(|error| {
        CliError::failed(format!("{} is not JSON", source.name)).with_causes(&error).with_hint("save the body as sent")
    })
}

/// Returns the effect as text that ends with a line break.
fn text(effect: &EventEffect) -> String {
    let mut text = String::new();
    for (SkippedEntry { entry, reason }, described) in effect.skipped.iter().zip(&effect.entries) {
        let _ = writeln!(text, "entry {entry} does not hold: {reason}\n  {described}");
    }
    if let (Some(entry), Some(described)) = (effect.entry, effect.entries.last()) {
        let _ = writeln!(text, "entry {entry} holds\n  {described}");
    }
    let (verb, kind, name, uid, time_ms, reason, document) = match &effect.outcome {
        EventOutcome::Apply { kind, name, uid, time_ms, document, .. } => {
            ("apply", kind, name, uid, time_ms, &None, Some(document))
        }
        EventOutcome::Delete { kind, name, uid, time_ms, reason, .. } => {
            ("delete", kind, name, uid, time_ms, reason, None)
        }
        EventOutcome::Ignored { reason } => {
            // Without an entry, the reasons are listed above.
            let reason = effect.entry.map_or("no entry holds", |_| reason);
            let _ = writeln!(text, "\nignored: {reason}");
            return text;
        }
    };
    let _ = writeln!(text, "\n{verb} {kind}/{name}");
    let time = time_ms.and_then(|time| jiff::Timestamp::from_millisecond(i64::try_from(time).ok()?).ok());
    let time = time.map(|time| time.to_string());
    let facts = [("uid", uid), ("time", &time), ("delivery", &effect.delivery_id), ("reason", reason)];
    text.extend(facts.into_iter().filter_map(|(name, value)| Some(format!("  {name} {}\n", value.as_ref()?))));
    if let Some(document) = document {
        let _ = write!(text, "\n{document}");
    }
    text
}
