//! What rows expect of the state of a stack beyond what its answers show.

use anyhow::{Context as _, bail};
use ebb_engine::HeadState;
use ebb_flow::env::TaskReports;
use ebb_store::{
    ClusterFaultKind, ListPass, NamedDocument, NamedKind, ReplayState, SourceWatch, Store, TargetHead, TargetTransition,
};

use super::TableRow;
use super::expected_values::differs;
use crate::harness::*;
use crate::lifecycle::retention::{objects, remove_expired_after};
use crate::security::secrets::{contains_canary, files};

/// How the stored runs of an instance compare with those that an earlier row has noted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StateCheck {
    Noted,
    Same,
    /// Their records may differ.
    SameHeads,
    /// As many runs and records, and the plan.
    Kept,
    /// No run, no record and no plan.
    Removed,
    NoUndoRecord,
}

/// The runs of instances, and whether each has its plan.
#[derive(Default)]
pub(super) struct NotedStates(BTreeMap<String, (Vec<StoredRun>, bool)>);

fn heads((runs, _): &(Vec<StoredRun>, bool)) -> Vec<Option<HeadState>> {
    runs.iter().map(|run| run.head.clone()).collect()
}

fn counts((runs, has_plan): &(Vec<StoredRun>, bool)) -> (usize, bool) {
    (runs.iter().map(|run| usize::from(run.head.is_some()) + run.records.len()).sum(), *has_plan)
}

/// Makes a source due. Its earlier observations and the sandboxes become older.
async fn age(store: &Store, source: &str, by: Millis) {
    let earlier = |at: Timestamp| Timestamp(at.0.saturating_sub(by.0));
    for name in store.living_names("sandbox").await.unwrap() {
        until(&format!("an older {name}"), async || {
            let seen = store.read_target(TargetKey::new("sandbox", &name)).await.unwrap()?;
            let TargetHead { version, .. } = seen;
            let older = TargetHead { created: earlier(seen.created), version: version + 1, ..seen };
            store.move_target(&TargetTransition::new(older, Some(version))).await.unwrap().then_some(())
        })
        .await;
    }
    until(&format!("older observations of {source}"), async || {
        let (watch, mut findings) = store.read_watch(source).await.unwrap()?;
        let missing = findings.missing.iter_mut().chain(&mut findings.refused);
        missing.for_each(|one| one.first = earlier(one.first));
        let pass = watch.pass.map(|pass| ListPass { begun: earlier(pass.begun), ..pass });
        let complete = watch.complete.map(|(begun, things)| (earlier(begun), things));
        let problem = watch.problem.map(|(since, why)| (earlier(since), why));
        let replay = watch.replay.map(|replay| ReplayState { until: earlier(replay.until), ..replay });
        let version = watch.version + 1;
        let older = SourceWatch { pass, complete, problem, replay, due: now(), version, ..watch };
        store.put_watch(&older, &findings).await.unwrap().then_some(())
    })
    .await;
}

impl TableRow {
    pub(super) async fn check_state(&self, harness: &Harness, noted: &mut NotedStates) -> anyhow::Result<()> {
        let store = harness.stack().store();
        for (name, changes) in &self.alter {
            let seen = store.read_target(TargetKey::new("sandbox", name)).await.unwrap().unwrap();
            let mut altered = json!(seen);
            altered.as_object_mut().unwrap().extend(changes.clone());
            let TargetHead { due, version, .. } = seen;
            let altered = TargetHead { due, version: version + 1, ..serde_json::from_value(altered).unwrap() };
            assert!(
                store.move_target(&TargetTransition::new(altered, Some(version))).await.unwrap(),
                "{name} has changed"
            );
        }
        for (source, minutes) in &self.aged {
            age(store, source, Millis(minutes * 60_000)).await;
        }
        if let Some(expected) = self.scan {
            let requested = ebb_flow::sweep::orphans::scan(harness.stack().env()).await.unwrap();
            ensure!(requested == expected, "{requested} tasks are deleted");
        }
        if let Some((hours, expected)) = self.remove {
            let removed = remove_expired_after(harness, Duration::from_secs(hours * 3_600)).await;
            ensure!(removed == expected, "{removed} are removed");
        }
        for (name, check) in &self.state {
            let mut runs = Vec::new();
            for hook in Hook::ALL {
                runs.push(harness.state(name, hook).await);
            }
            let found = (runs, store.get_plan(&instance(name)).await.unwrap().is_some());
            let known = noted.0.get(name);
            let is_right = match check {
                StateCheck::Noted => counts(&found).0 > 0 && found.1,
                StateCheck::Same => known == Some(&found),
                StateCheck::SameHeads => known.map(heads) == Some(heads(&found)),
                StateCheck::Kept => known.map(counts) == Some(counts(&found)),
                StateCheck::Removed => counts(&found) == (0, false),
                StateCheck::NoUndoRecord => {
                    Hook::ALL.iter().zip(&found.0).all(|(hook, run)| *hook != Hook::PostStop || run.records.is_empty())
                }
            };
            ensure!(is_right, "{name} has {found:?}, not {known:?}");
            if matches!(check, StateCheck::Noted) {
                noted.0.insert(name.clone(), found);
            }
        }
        for (name, expected) in &self.target {
            until(&format!("{expected:?} of {name}"), async || {
                let target = store.read_target(TargetKey::new("sandbox", name)).await.unwrap();
                differs(&json!(target), expected).ok()
            })
            .await;
        }
        if let Some(name) = &self.refresh {
            let (env, run) = (harness.stack().env(), run_id(name, Hook::PreStart));
            if let Some(last) = env.task_reports(&run) {
                let (states, progress) = (last.states.clone(), last.progress.clone());
                env.remember_task_reports(&run, &Arc::new(TaskReports { until: Default::default(), states, progress }));
            }
        }
        if let Some((kind, cluster, reason)) = &self.fault {
            let (kind, at) = match kind.as_str() {
                "outage" => (ClusterFaultKind::Outage, Timestamp(1)),
                "denial" => (ClusterFaultKind::Denial, now()),
                _ => bail!("no fault {kind}"),
            };
            store.begin_fault(kind, cluster, at, reason).await.unwrap();
        }
        if let Some(expected) = &self.denied {
            let faults = store.read_faults(ClusterFaultKind::Denial).await.unwrap();
            ensure!(faults.keys().eq(expected), "denied are {faults:?}");
        }
        for kind in &self.older {
            let kinds = [("connection", NamedKind::Connection), ("subscription", NamedKind::Subscription)];
            let found = kinds.into_iter().find(|(name, _)| name == kind);
            let (_, kind) = found.with_context(|| format!("no kind {kind}"))?;
            let older = NamedDocument { name: "a".to_owned(), document: "kind: Older".to_owned(), changed: now() };
            store.put_document(kind, &older).await.unwrap();
        }
        if let Some(expected) = self.objects {
            let found = objects(harness).await;
            ensure!(found == expected, "{found} objects are stored");
        }
        if let Some(expected) = &self.undone {
            until(&format!("the undos of {expected:?}"), async || (undone(harness) == *expected).then_some(())).await;
        }
        if self.forgotten {
            let mut secrets = files(&harness.folder().join("state/secrets")).into_iter();
            let left = secrets.find(|file| contains_canary(&std::fs::read(file).unwrap_or_default()));
            ensure!(left.is_none(), "a canary is in {left:?}");
        }
        if !self.logged.is_empty() {
            let log = std::fs::read_to_string(crate::log_file()).unwrap();
            let wrong = self.logged.iter().find(|(text, is_logged)| {
                log.lines().any(|line| text.split(" … ").all(|part| line.contains(part))) != **is_logged
            });
            ensure!(wrong.is_none(), "the log has {wrong:?}, or lacks it");
        }
        Ok(())
    }
}
