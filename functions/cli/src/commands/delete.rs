//! `ebb delete`: deletes documents and targets, or stops a stuck teardown.

use std::time::Duration;

use ebb_protocol::api::{
    ForceDeleteTarget, NamedTarget, OverrideResponse, TargetAction, TargetDetail, TargetPhase, TargetSelector,
};

use super::get::check_kind;
use super::kinds::{DocumentKind, Kind, KindParser};
use super::unit::override_text;
use crate::{
    ApiClient, ChangeKind, CliError, CommandTargets, DocumentChange, DryRunArgs, Exit, FileArgs, FollowGoal, KindArgs,
    OutputArgs, Result, SelectorArgs, ServerArgs, SetArgs, TargetRef, TargetsCommand, WaitArgs, YesArgs, accept_loss,
    bulk, check_names, connect, documents, output, target_of, timing, wait, watched,
};

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("files", |files| files.help("File with documents of targets to delete, or folder with such files; `-` reads standard input; repeatable"))
)]
pub(crate) struct DeleteArgs {
    /// Kind: plugin, source, connection, subscription, sandbox, another kind of targets, or `all` kinds of targets
    #[arg(
        value_name = "KIND",
        value_parser = KindParser,
        hide_possible_values = true,
        required_unless_present = "files",
        conflicts_with = "files"
    )]
    deleted: Option<(Kind, Option<String>)>,
    /// Names to delete, also as KIND/NAME. NAME@VERSION selects a version of a plugin, and NAME its highest version
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Select targets that use this plugin
    #[arg(long, value_name = "NAME[@VERSION]")]
    plugin: Option<String>,
    /// Delete only this instance of one target; another one is an error
    #[arg(long, value_name = "UID", conflicts_with = "force")]
    uid: Option<String>,
    /// Delete the instance only while it has this generation
    #[arg(long, value_name = "GENERATION", requires = "uid")]
    if_generation: Option<u64>,
    /// Delete targets also if a resource has `protect: true`
    #[arg(long, conflicts_with = "force")]
    allow_protected: bool,
    #[command(flatten)]
    yes: YesArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the targets are gone
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "5m")]
    wait_timeout: Duration,
    /// Stop the stuck teardown of one target; resources may remain
    #[arg(long, requires = "reason", conflicts_with = "dry_run")]
    force: bool,
    /// Reason of --force; stored with the units
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
    // Not an `env` of clap: a value from there would require `--force` as well.
    /// Person who decided it; by default the environment variable USER
    #[arg(long, value_name = "NAME", requires = "force")]
    by: Option<String>,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl DeleteArgs {
    pub(crate) async fn run(mut self, server: &ServerArgs) -> Result<Exit> {
        let (kind, own) = self.deleted.take().unwrap_or((Kind::Targets(None), None));
        if let (Kind::Targets(Some(kind)), None) = (&kind, &own) {
            check_names(kind, &self.names)?;
        }
        own.into_iter().for_each(|name| self.names.insert(0, name));
        let kind = match &kind {
            Kind::Document(kind) => return self.delete_documents(server, kind).await,
            Kind::Targets(kind) => kind.as_deref(),
        };
        let target = match (self.targets(kind)?, &self.uid) {
            (CommandTargets::One(target), None) if !self.dry_run.dry_run => target,
            (CommandTargets::One(target), uid) => {
                let generation = self.if_generation;
                let instance = NamedTarget { uid: uid.clone(), generation, ..target.into() };
                return self.delete_all(&connect(server)?, CommandTargets::Named(vec![instance])).await;
            }
            (_, Some(_)) => return Err(CliError::broken("--uid needs the name of one target")),
            (targets, None) => return self.delete_all(&connect(server)?, targets).await,
        };
        let client = connect(server)?;
        let seen = client.existing(&target).await?;
        if self.force && seen.info.phase != TargetPhase::Gone {
            return self.force_delete(&client, &target, seen).await;
        }
        let info = &seen.info;
        if info.phase != TargetPhase::Gone || seen.waiting_uid.is_some() {
            self.delete(&client, &target, &seen).await?;
        }
        if info.phase == TargetPhase::Gone {
            output::status_line(&format!("{target} was deleted at {}", timing::clock(&info.since)));
            return self.output.write_data(&seen);
        }
        self.await_gone(&client, &target, seen).await
    }

    /// Deletes a target with the instance that waits for its name, which would begin otherwise. The server refuses both or none,
    /// and with `force` it needs the scope that the stop of the teardown needs.
    async fn delete(&self, client: &ApiClient, target: &TargetRef, seen: &TargetDetail) -> Result<()> {
        client.delete_target(target, None, self.allow_protected || self.force).await?;
        if let Some(uid) = &seen.waiting_uid {
            output::status_line(&format!("the waiting instance of {target} was cancelled (uid {uid})"));
        }
        Ok(())
    }

    async fn delete_documents(&self, server: &ServerArgs, kind: &DocumentKind) -> Result<Exit> {
        let is_for_targets = self.force || self.uid.is_some() || self.allow_protected;
        if self.names.is_empty() || is_for_targets || !self.selector.selection(None, self.plugin.as_deref()).is_open() {
            let plural = kind.plural;
            return Err(CliError::broken(format!("expected names of {plural}; the other options are for targets")));
        }
        check_names(kind.name, &self.names)?;
        let client = connect(server)?;
        let mut changes = Vec::new();
        for name in &self.names {
            let stored = kind.stored(&client, name).await?;
            let full = DocumentKind::full_name(&stored);
            let is_withdrawn = stored["withdrawn"].is_string();
            let change = if is_withdrawn { ChangeKind::None } else { ChangeKind::Delete };
            let mut change = DocumentChange::planned(kind.name, full, change);
            if kind.is_plugin() {
                let used = TargetSelector { plugin: Some(change.name.clone()), ..TargetSelector::default() };
                // A token without `read` may withdraw the version, too.
                let (users, _) = client.targets(&used, &[]).await.unwrap_or_default();
                let first: Vec<_> = users.iter().take(10).map(|target| TargetRef::from(target).to_string()).collect();
                let (count, first) = (users.len(), first.join(", "));
                if count > 0 {
                    let more = if count > 10 { format!(" and {} more", count - 10) } else { String::new() };
                    output::status_line(&format!("{count} living targets keep {}: {first}{more}", change.name));
                }
            }
            let is_dry_run = self.dry_run.dry_run;
            match kind.delete(&client, &stored, is_dry_run.then_some("dryRun")).await {
                Err(error) if error.has_code("document-in-use") => {
                    accept_loss(&error, self.yes.yes || is_dry_run, &format!("Delete {} {}", kind.name, change.name))?;
                    if !is_dry_run {
                        kind.delete(&client, &stored, Some("force")).await?;
                    }
                }
                done => done?,
            }
            if is_dry_run {
                self.output.lines()(&change.text())?;
            } else {
                change.dry_run = false;
                output::status_line(&format!("Deleted {} {}; {}", kind.name, change.name, kind.deleted));
            }
            changes.push(change);
        }
        self.output.write_data(&changes)
    }

    async fn delete_all(&self, client: &ApiClient, targets: CommandTargets) -> Result<Exit> {
        if self.force {
            return Err(CliError::broken("--force needs the name of one target"));
        }
        let is_dry_run = self.dry_run.dry_run;
        let kind = if let CommandTargets::Selected(selector) = &targets { selector.kind.clone() } else { None };
        if let Some(kind) = kind {
            check_kind(client, &kind).await?;
        }
        let action = TargetAction::Delete { allow_protected: self.allow_protected };
        let command = TargetsCommand { client, action, verb: "Delete", is_dry_run, output: self.output };
        let answered =
            command.run(targets, self.yes, |outcome, _| match is_dry_run || outcome.phase == Some(TargetPhase::Gone) {
                true => bulk::would("delete", outcome),
                false => {
                    let withdrawn = bulk::withdrawn(outcome).map(|text| format!(", {text}")).unwrap_or_default();
                    format!("{} is being deleted{withdrawn}", crate::many_waits::acted_on(outcome))
                }
            });
        let wait = self.wait.wait.then_some(((FollowGoal::Gone, "are gone"), self.wait_timeout));
        answered.await?.finish(&command, "are being deleted", wait).await
    }

    async fn force_delete(&self, client: &ApiClient, target: &TargetRef, seen: TargetDetail) -> Result<Exit> {
        let by = self.by.clone().or_else(|| std::env::var("USER").ok());
        let (uid, reason) = (Some(seen.info.uid.clone()), self.reason.clone().unwrap_or_default());
        let body = ForceDeleteTarget { uid, reason, by };
        if seen.info.phase == TargetPhase::Stuck && seen.waiting_uid.is_some() {
            self.delete(client, target, &seen).await?;
        }
        let response: Result<OverrideResponse> = client.act(target, "force-delete", &body).await;
        let response = response.map_err(|error| match error.has_code("not-stuck") && seen.info.phase.is_alive() {
            true => error.with_hint(format!("ebb delete {} {}", target.kind, target.name)),
            false => error,
        })?;
        output::status_line(&override_text(&response));
        self.await_gone(client, target, seen).await
    }

    async fn await_gone(&self, client: &ApiClient, target: &TargetRef, seen: TargetDetail) -> Result<Exit> {
        let ended = match self.wait.wait.then_some(self.wait_timeout) {
            None => output::message(&format!("{target} is being deleted")),
            Some(timeout) => wait(client, &watched(target, &seen), FollowGoal::Gone, timeout, seen.runs.clone()).await,
        };
        if self.output.format.is_some() {
            let last = client.target(target).await;
            // The error of the wait is more important than this one.
            if last.is_ok() || ended.is_ok() {
                // A new instance may have started under the name.
                let last = last?.filter(|last| last.info.uid == seen.info.uid);
                self.output.write_data(&last.unwrap_or(seen))?;
            }
        }
        ended
    }

    /// Returns the targets of the files, or those of a kind that names or the selector give.
    fn targets(&self, kind: Option<&str>) -> Result<CommandTargets> {
        let plugin = self.plugin.as_deref();
        if self.files.files.is_empty() {
            if !self.sets.sets.is_empty() {
                return Err(CliError::broken("--set needs a document: add -f FILE"));
            }
            let targets = self.selector.targets(&self.names, kind, plugin);
            let hint = |error: CliError| error.with_hint("or its document: -f FILE");
            return targets.map_err(|error| if self.names.is_empty() { hint(error) } else { error });
        }
        if !self.selector.selection(None, plugin).is_open() {
            return Err(CliError::broken("-f and a selector exclude each other"));
        }
        // The other documents stay, because other targets can use them.
        let documents = documents::targets(&self.files.files, &self.sets.vars()?)?;
        let mut targets: Vec<_> = documents.iter().map(|document| target_of(document, &self.kind.kind)).collect();
        Ok(match targets.len() {
            1 => CommandTargets::One(targets.remove(0)),
            _ => CommandTargets::Named(targets.into_iter().map(NamedTarget::from).collect()),
        })
    }
}
