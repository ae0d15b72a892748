//! The next steps of a diagnosis.

use ebb_engine::TargetPhase;

use super::commands;
use crate::{FailedUnit, TargetDiagnosis, UnitDetail, UnitWait, WaitResolution};

/// Maximum failed units for which the next steps have a command.
const FORCE_COMPLETES: usize = 3;

/// What the next steps of a target depend on beside its diagnosis.
#[derive(Clone, Debug)]
pub struct TargetSituation<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    /// The source that has created the target.
    pub source: Option<&'a str>,
    /// True if the platform has not accepted a notification.
    pub is_undelivered: bool,
    /// The name of a cluster that does not respond, and false for one of the configuration.
    pub lost: Option<(&'a str, bool)>,
    /// The first wait of the present run.
    pub wait: Option<(&'a UnitDetail, &'a UnitWait)>,
    /// The name of the plugin of a failed unit.
    pub plugin: Option<&'a str>,
    /// A newer version of the plugin of a failed unit.
    pub newer: Option<&'a str>,
    /// True if a retry ends the wait of a unit for a time.
    pub is_timed: bool,
    /// True if a protected resource prevents a deletion that the platform or the source wants.
    pub is_kept: bool,
    pub is_protected: bool,
}

impl TargetSituation<'_> {
    /// Returns the next steps, the most useful first.
    pub fn next_steps(&self, diagnosis: &TargetDiagnosis) -> Vec<String> {
        let Self { kind, name, .. } = *self;
        let target = &commands::target_arguments(kind, name);
        let mut next = Vec::new();
        if let Some(newer) = self.newer {
            next.push(match diagnosis.phase {
                TargetPhase::Failed => format!("if {newer} fixes it: {}", commands::upgrade(newer, target)),
                _ => format!("if {newer} fixes the undo: {}", commands::retry_with(target, newer)),
            });
        }
        next.extend(self.wait.filter(|_| self.lost.is_none()).and_then(|(unit, wait)| end_of_wait(unit, wait)));
        if self.is_undelivered {
            let step = "check whether the platform accepts notifications; the delivery is retried automatically";
            next.push(step.to_owned());
        }
        match diagnosis.phase {
            TargetPhase::Failed => {
                next.extend(log_of_cause(diagnosis, target));
                next.push(format!(
                    "if the cause is outside of the documents: remove it, then: {}",
                    commands::retry(target)
                ));
                // The update `N` calls what it undoes `NAME~N`.
                let is_former = |unit: &&str| unit.split('/').next().is_some_and(|owner| owner.contains('~'));
                let former = diagnosis.failed.iter().map(|failed| failed.unit.as_str()).find(is_former);
                next.push(former.map_or_else(|| self.corrected_document(target), |unit| self.former_undo(unit)));
                let undo = if diagnosis.remaining.is_empty() { "" } else { ", which deletes its resources" };
                let delete = if self.is_protected { commands::delete_protected } else { commands::delete };
                next.push(format!("to give it up: {}{undo}", delete(kind, name)));
            }
            TargetPhase::Stuck => {
                next.push(format!("remove the cause, then: {}", commands::retry(target)));
                next.extend(log_of_cause(diagnosis, target));
                if let (Some(plugin), None) = (self.plugin, self.newer) {
                    let retry = commands::retry_with(target, &format!("{plugin}@VERSION"));
                    next.push(format!("if its undo is wrong: publish a corrected version of {plugin}, then: {retry}"));
                }
                let is_own = |unit: &str| unit.starts_with("target/") || unit.starts_with("target~");
                if let Some(own) = diagnosis.failed.iter().find(|failed| is_own(&failed.unit)) {
                    let retry = commands::retry_with_file(target);
                    next.push(format!("if {} is wrong: correct the file, then: {retry}", own.unit));
                }
                let failed = diagnosis.failed.iter().take(FORCE_COMPLETES);
                let command = |failed: &FailedUnit| commands::force_complete(target, &failed.unit);
                next.extend(failed.map(|failed| format!("continue without it: {}", command(failed))));
                next.push(format!("give up what remains: {}", commands::force_delete(kind, name)));
            }
            TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping => {
                let force_delete = commands::force_delete(kind, name);
                next.extend(self.lost.into_iter().flat_map(|lost| lost_cluster(lost, &force_delete)));
                let crashes = self.wait.filter(|(_, wait)| wait.message.contains("CrashLoopBackOff"));
                next.extend(crashes.map(|(unit, _)| log(target, &unit.key)));
                next.extend(self.is_timed.then(|| format!("to end the wait for a time: {}", commands::retry(target))));
                next.push(format!("show the progress: {}", commands::get(kind, name)));
            }
            TargetPhase::Ready | TargetPhase::Gone => {}
        }
        let delete = || format!("to delete it as an operator: {}", commands::delete_protected(kind, name));
        next.extend(self.is_kept.then(delete));
        next
    }

    fn former_undo(&self, unit: &str) -> String {
        let delete = commands::delete(self.kind, self.name);
        let why = commands::why(&commands::target_arguments(self.kind, self.name));
        format!(
            "{unit} is an undo of an earlier document, so a corrected file does not change it; if it is wrong: {delete}, \
             then the steps of: {why}"
        )
    }

    fn corrected_document(&self, target: &str) -> String {
        let apply = commands::APPLY;
        let upgrade = commands::upgrade(self.plugin.unwrap_or("PLUGIN"), target);
        match self.source {
            Some(source) => format!(
                "if a plugin is wrong: publish a corrected version, then: {upgrade}; if the document is wrong: correct it \
                 (`{apply}`); the next event of the source {source} then repairs the target"
            ),
            None => format!(
                "if the file is wrong: correct it; if a plugin is wrong: publish a corrected version and name it in the file; \
                 then: {apply}, which repairs it"
            ),
        }
    }
}

fn log_of_cause(diagnosis: &TargetDiagnosis, target: &str) -> Option<String> {
    let cause = diagnosis.cause.as_ref().filter(|cause| !cause.log.is_empty())?;
    Some(log(target, &cause.unit))
}

fn log(target: &str, unit: &str) -> String {
    format!("read its log: {}", commands::logs(target, unit))
}

/// Returns the step that ends a wait, if it does not end by itself.
fn end_of_wait(unit: &UnitDetail, wait: &UnitWait) -> Option<String> {
    let UnitWait { object, message, resolves, fails_at, .. } = wait;
    let until = fails_at.as_ref().or(unit.deadline.as_ref()).map(|at| format!(" before {at}")).unwrap_or_default();
    match resolves {
        WaitResolution::Itself if message.contains("the finalizer `") => {
            Some(format!("if its client is gone: remove the finalizer with `kubectl edit`; {} continues", unit.key))
        }
        WaitResolution::Itself => None,
        WaitResolution::Person => {
            Some(format!("remove the cause of the wait of {object}{until}; {} then continues", unit.key))
        }
        WaitResolution::Never => Some(format!("correct {object} in its document: as written, it never becomes ready")),
    }
}

/// Returns the steps for a cluster that does not respond. `force_delete` is the last command.
fn lost_cluster((name, is_registered): (&str, bool), force_delete: &str) -> [String; 3] {
    let disconnect =
        if is_registered { commands::disconnect(name) } else { format!("remove {name} from EBB_CLUSTERS") };
    [
        format!("show relay health: {}", commands::LIST_CLUSTERS),
        "remove its cause, for example start the relay or restore a connection; the waiting units then continue"
            .to_owned(),
        format!(
            "if the cluster does not exist any more: {disconnect}, which fails the waiting units; then: {force_delete}"
        ),
    ]
}
