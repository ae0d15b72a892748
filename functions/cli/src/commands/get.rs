//! `ebb get`: lists the documents or targets of a kind, or shows one of them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use clap::ValueEnum;
use ebb_documents::cel::nearest;
use ebb_protocol::api::{TargetDetail, TargetPhase, TargetSelector};
use ebb_protocol::lifecycle::USUAL_KINDS;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::kinds::{Columns, DocumentKind, Kind, KindParser, cell, table};
use super::plugin::never_published;
use super::target_text;
use crate::output::{self, OutputArgs, OutputFormat, printable};
use crate::{ApiClient, CliError, Exit, Result, SelectorArgs, TargetRef, bulk, check_names};

pub(super) static TARGETS: LazyLock<Columns> =
    LazyLock::new(|| serde_json::from_str(include_str!("target_columns.json")).expect("the file has columns"));

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Kind: plugin, source, connection, subscription, sandbox, another kind of targets, or `all` kinds of targets
    #[arg(value_name = "KIND", value_parser = KindParser, hide_possible_values = true)]
    kind: (Kind, Option<String>),
    /// Names to show, also as KIND/NAME. Without one, all of the kind are listed. NAME@VERSION selects a version of a plugin
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Select targets that use this plugin
    #[arg(long, value_name = "NAME[@VERSION]")]
    plugin: Option<String>,
    /// Include the targets that are gone; of plugins, list all versions, not only the highest
    #[arg(short = 'A', long)]
    all: bool,
    /// List only the targets that are gone
    #[arg(long, conflicts_with = "all")]
    gone: bool,
    /// List only the targets that are gone and whose resources may remain
    #[arg(long, conflicts_with = "all")]
    unconfirmed: bool,
    /// Print the sensitive values of targets that the server stores; needs the scope `targets:reveal`
    #[arg(long)]
    reveal: bool,
    /// Show the progress until the target is ready, failed, stuck or gone. With `-o json`, print one line per change
    #[arg(long, short, conflicts_with = "reveal")]
    watch: bool,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Names, one per line.
    Name,
    /// A table with all columns.
    Wide,
    Json,
    Yaml,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Sort by this column, such as `since`; `-since` puts the last one first
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Print names, all columns, or data for programs. With one name of a document, `yaml` prints the document
    #[arg(short = 'o', long = "output", value_name = "name|wide|json|yaml", hide_possible_values = true)]
    format: Option<ListFormat>,
}

impl GetArgs {
    pub(crate) async fn run(mut self, client: &ApiClient) -> Result<Exit> {
        let (kind, own) = self.kind.clone();
        if let (Kind::Targets(Some(kind)), None) = (&kind, &own) {
            check_names(kind, &self.names)?;
        }
        own.into_iter().for_each(|name| self.names.insert(0, name));
        match kind {
            Kind::Document(kind) => self.documents(client, kind).await,
            Kind::Targets(kind) => self.targets(client, kind.as_deref()).await,
        }
    }

    async fn documents(&self, client: &ApiClient, kind: &DocumentKind) -> Result<Exit> {
        let selection = self.selector.selection(None, self.plugin.as_deref());
        if !selection.is_open() || self.gone || self.unconfirmed || self.reveal || self.watch {
            return Err(CliError::broken(format!(
                "{} take -A, --sort and -o; the other options are for targets",
                kind.plural
            )));
        }
        let mut all: Vec<Value> = match &self.names[..] {
            [name] if kind.is_plugin() && self.all => {
                let versions = client.versions(name).await?.filter(|versions| !versions.is_empty());
                versions.ok_or_else(|| never_published(name))?.iter().map(output::json).collect()
            }
            [name] => return self.document(kind, &kind.stored(client, name).await?),
            [] => client.all(kind.plural).await?,
            names => {
                let stored = stream::iter(names).then(|name| kind.stored(client, name)).try_collect().await?;
                return self.list.print(&kind.columns, kind.plural, stored);
            }
        };
        all.sort_by_cached_key(|data| natural_order(&cell("NAME", data)));
        let listed = all.len();
        if kind.is_plugin() && !self.all {
            // The server lists the highest version of each name first.
            all.dedup_by(|later, first| later["name"] == first["name"]);
        }
        let is_shortened = all.len() < listed;
        self.list.print(&kind.columns, kind.plural, all)?;
        if is_shortened && self.list.data().format.is_none() {
            output::status_line("Some plugins have more versions: ebb get plugins -A");
        }
        Ok(Exit::Done)
    }

    fn document(&self, kind: &DocumentKind, stored: &Value) -> Result<Exit> {
        match self.list.format {
            Some(ListFormat::Name) => self.list.print(&kind.columns, kind.plural, vec![stored.clone()]),
            Some(ListFormat::Yaml) => output::print_data(stored["document"].as_str().unwrap_or_default()),
            Some(ListFormat::Wide | ListFormat::Json) | None => {
                self.list.data().write(stored, |stored| kind.page(stored))
            }
        }
    }

    async fn targets(&self, client: &ApiClient, kind: Option<&str>) -> Result<Exit> {
        let selection = self.selector.selection(kind, self.plugin.as_deref());
        let named = self.names.iter().map(|name| TargetRef::parse(kind, name)).collect::<Result<Vec<_>>>()?;
        if (self.watch || self.reveal) && named.len() != 1 {
            return Err(CliError::broken("--watch and --reveal need the name of one target"));
        }
        if named.is_empty() {
            return self.list_targets(client, &selection).await;
        }
        if !selection.is_open() || self.all || self.gone || self.unconfirmed {
            return Err(CliError::broken("a name and a selector exclude each other"));
        }
        let seen = stream::iter(&named).then(|target| client.with_values(target, None, self.reveal));
        let seen: Vec<TargetDetail> = seen.try_collect().await?;
        match (&seen[..], self.list.format) {
            ([seen], _) if self.watch => target_text::watch(client, seen, self.list.data()).await,
            ([seen], format) if format != Some(ListFormat::Name) => target_text::show(seen, self.list.data()),
            (seen, _) => self.list.print(&TARGETS, "targets", seen.iter().map(output::json).collect()),
        }
    }

    async fn list_targets(&self, client: &ApiClient, selected: &TargetSelector) -> Result<Exit> {
        let (mut targets, mut warnings) = (Vec::new(), BTreeSet::new());
        let unconfirmed = self.unconfirmed.then_some("unconfirmed");
        // A target whose last notification is not accepted is gone, too, and is still in the other list.
        if !self.gone {
            (targets, warnings) = client.targets(selected, unconfirmed.as_slice()).await?;
        }
        if self.gone || self.all || self.unconfirmed || selected.phases.contains(&TargetPhase::Gone) {
            let (gone, further) = client.targets(selected, &[&["gone"][..], unconfirmed.as_slice()].concat()).await?;
            targets.extend(gone);
            warnings.extend(further);
        }
        targets.sort_by_cached_key(|it| (it.kind.clone(), natural_order(&it.name), it.name.clone()));
        // A target that ended between the two requests is in both lists.
        targets.dedup_by(|b, a| (&a.kind, &a.name) == (&b.kind, &b.name));
        if let (true, Some(kind)) = (targets.is_empty(), &selected.kind) {
            check_kind(client, kind).await?;
        }
        let noun = match selected.kind.as_deref() {
            Some("sandbox") => "sandboxes".to_owned(),
            Some(kind) => format!("targets of the kind {}", printable(kind)),
            None => "targets".to_owned(),
        };
        self.list.print(&TARGETS, &noun, targets.iter().map(output::json).collect())?;
        bulk::print_warnings(warnings);
        let broken = targets.iter().filter(|it| matches!(it.phase, TargetPhase::Failed | TargetPhase::Stuck));
        let next = bulk::next_step(broken.map(TargetRef::from));
        if let Some(next) = next.filter(|_| self.list.data().format.is_none()) {
            output::status_line(&next);
        }
        Ok(Exit::Done)
    }
}

impl ListArgs {
    fn data(&self) -> OutputArgs {
        let format = match self.format {
            Some(ListFormat::Json) => Some(OutputFormat::Json),
            Some(ListFormat::Yaml) => Some(OutputFormat::Yaml),
            Some(ListFormat::Name | ListFormat::Wide) | None => None,
        };
        OutputArgs { format }
    }

    /// Prints documents or targets as names, as a table or as data, in the order of the selected column. `noun` is their plural.
    fn print(&self, columns: &Columns, noun: &str, mut all: Vec<Value>) -> Result<Exit> {
        if let Some(sort) = &self.sort {
            let headers = columns[..2].concat();
            let wanted = sort.trim_start_matches('-').replace('-', " ").to_uppercase();
            let header = headers.iter().find(|header| **header == wanted).ok_or_else(|| {
                let names = headers.iter().map(|header| header.to_lowercase().replace(' ', "-"));
                CliError::broken(format!("there is no column `{sort}`"))
                    .with_hint(format!("columns: {}", names.collect::<Vec<_>>().join(", ")))
            })?;
            all.sort_by_cached_key(|data| natural_order(&cell(header, data)));
            if sort.starts_with('-') {
                all.reverse();
            }
        }
        if all.is_empty() && self.data().format.is_none() {
            return output::message(&format!("No {noun} are listed"));
        }
        if self.format == Some(ListFormat::Name) {
            let kind = noun.trim_end_matches('s');
            let line = |data: &Value| {
                [data["kind"].as_str().unwrap_or(kind), "/", &DocumentKind::full_name(data), "\n"].concat()
            };
            return output::print(&all.iter().map(line).collect::<String>());
        }
        let shown = if self.format == Some(ListFormat::Wide) { 2 } else { 1 };
        self.data().write(&all, |all| table(&columns[..shown].concat(), all))
    }
}

/// Returns an error for a kind that is not usual and that no target has, also none that is gone.
pub(super) async fn check_kind(client: &ApiClient, kind: &str) -> Result<()> {
    let of_kind = TargetSelector { kind: Some(kind.to_owned()), ..TargetSelector::default() };
    for flags in [&[][..], &["gone"]] {
        if USUAL_KINDS.contains(&kind) || !client.targets(&of_kind, flags).await?.0.is_empty() {
            return Ok(());
        }
    }
    let near = nearest(kind, Kind::names()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    let names: Vec<&str> = Kind::names().take_while(|name| name.ends_with('s')).collect();
    let error = CliError::failed(format!("no target has the kind {}", printable(kind)));
    Err(error.with_hint(format!("{near}usual kinds: {}", names.join(", "))))
}

/// Returns a key by which numbers in texts are ordered by their values: `pr-9` is before `pr-10`.
fn natural_order(text: &str) -> Vec<Result<u64, String>> {
    let characters: Vec<char> = text.chars().collect();
    let parts = characters.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    parts.map(|part| part.iter().collect::<String>()).map(|part| part.parse().map_err(|_| part)).collect()
}
