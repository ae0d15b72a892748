//! A reader that follows the feed of changed targets, as an open page does.

use super::*;

const POLL_MS: u64 = 3_000;

/// The questions after which the reader knows a change.
const QUESTIONS: u32 = 3;

/// The knowledge of the reader. `None` until it starts.
#[derive(Clone, Default)]
pub(super) struct SimWatcher(Arc<Mutex<Option<WatcherState>>>);

type ShownTarget = (String, TargetPhase);

#[derive(Default)]
struct WatcherState {
    /// The targets as the reader shows them, by name.
    shown: BTreeMap<String, ShownTarget>,
    /// The states that the reader does not show, with the number of questions since.
    missing: BTreeMap<String, (ShownTarget, u32)>,
    /// The number of targets that the feed has named.
    followed: u64,
    wrong: Vec<String>,
}

impl WatcherState {
    /// Receives the names of changed targets. `None`: the reader reads everything.
    fn learn(&mut self, named: Option<&[String]>, table: &TableState) {
        self.followed += named.map_or(0, |named| named.len() as u64);
        for target in table.targets.values() {
            let (name, state) = (target.name.clone(), (target.uid.clone(), target.phase));
            if named.is_none_or(|named| named.contains(&target.target_key().to_string())) {
                self.shown.insert(name.clone(), state.clone());
            }
            if self.shown.get(&name) == Some(&state) {
                self.missing.remove(&name);
                continue;
            }
            let missing = self.missing.entry(name).or_insert_with(|| (state.clone(), 0));
            if missing.0 != state {
                *missing = (state, 0);
            }
            missing.1 += 1;
            if missing.1 == QUESTIONS {
                self.wrong.push(format!("a reader does not learn of {:?}", missing.0));
            }
        }
    }
}

impl Simulation {
    /// Starts a reader that follows the feed of changed targets to the end.
    pub fn start_watcher(&self) {
        let (state, runtime) = (Arc::clone(&self.watcher.0), self.runtime.clone());
        let (functions, table) = (Arc::clone(&self.functions), Arc::clone(&self.table));
        *lock(&state) = Some(WatcherState::default());
        self.runtime.spawn(async move {
            let mut since = None;
            loop {
                runtime.sleep(POLL_MS).await;
                let Ok((last, targets)) = functions.changes(since).await else { continue };
                since = last;
                if let Some(state) = lock(&state).as_mut() {
                    state.learn(targets.as_deref(), &table.state());
                }
            }
        });
    }

    /// Returns the number of changes that the reader has learned from the feed.
    pub fn followed(&self) -> u64 {
        lock(&self.watcher.0).as_ref().map_or(0, |state| state.followed)
    }
}

/// The reader has learned of each change, unless an invocation has died or failed.
pub(super) fn check(simulation: &Simulation) -> Vec<String> {
    let has_losses =
        FaultKind::that_are(FaultAttribute::Interrupting).into_iter().any(|kind| simulation.injected(kind) > 0);
    let state = lock(&simulation.watcher.0);
    state.as_ref().filter(|_| !has_losses).map_or_else(Vec::new, |state| state.wrong.clone())
}
