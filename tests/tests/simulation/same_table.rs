//! Compares the simulated table with the store: a sequence of operations has the same results on both.

use std::fmt::Debug;
use std::sync::Arc;

use ebb_engine::{
    Attempt, Epoch, Hook, Patch, PatchChange, PatchCondition, RunPhase, Shard, TargetPhase, Timestamp, Unit,
};
use ebb_flow::env::SweepStore;
use ebb_local::embedded::{EmbeddedTable, FolderBucket};
use ebb_protocol::id::{RunId, TargetKey};
use ebb_protocol::record::{AttemptOutcome, AttemptResult, OutputStorage};
use ebb_store::{
    AttemptUpdate, DesiredKey, DesiredTarget, InstanceExpiry, NamedDocument, NamedKind, NewRun, RemoveExpired,
    RunFacts, SourceRejections, Store, StoreError, StoreResult, TargetHead, TargetTransition, Tombstone,
};
use ebb_tests::simulation::{KIND, SimRuntime, SimTable};
use proptest::prelude::*;

/// A time that all values count from, in milliseconds since 1970.
const START: u64 = 1_795_305_600_000;

/// An operation. The ranges of the numbers are small, so that several operations concern one item.
#[derive(Clone, Debug)]
enum StoreOperation {
    Move { target: u8, version: u64, is_alive: bool, due: Option<u64>, with_run: bool, with_plan: bool, ended: bool },
    PutTombstone { target: u8, ended: u64 },
    Patch { run: u8, shard: u32, conditions: Vec<PatchCondition>, changes: Vec<PatchChange> },
    SetRunPlan { run: u8 },
    Update { run: u8, unit: u32, attempt: u32, update: AttemptUpdate },
    Accept { run: u8, unit: u32, attempt: u32, at: u64 },
    Result { run: u8, unit: u32, attempt: u32, result: u8 },
    MarkOutputs { run: u8 },
    PutDesired { key: u8, version: u64, due: Option<u64> },
    PutRejections { source: u8, version: u64 },
    PutExpiry { target: u8, due: u64 },
    PostponeExpiry { target: u8, due: u64, to: u64 },
    DeleteExpiry { target: u8, due: u64 },
    ListExpired { now: u64 },
    DeleteRoot { run: u8 },
    DeleteRun { run: u8 },
    DeletePlan { target: u8 },
    RestorePlan { target: u8 },
    PutUndelivered { subscription: u8, number: u8 },
    Due { now: u64 },
}

trait BothTables: SweepStore + RemoveExpired {}
impl<T: SweepStore + RemoveExpired> BothTables for T {}

fn time(step: u64) -> Timestamp {
    Timestamp(START + step * 1_000)
}

fn name(target: u8) -> String {
    format!("t{target}")
}

fn instance(target: u8) -> String {
    TargetKey::new(KIND, &name(target)).instance("u").key()
}

fn run(target: u8) -> RunId {
    RunId::new(&instance(target), 1, Hook::PreStart)
}

fn expiry(target: u8, due: u64) -> InstanceExpiry {
    InstanceExpiry {
        kind: KIND.to_owned(),
        name: name(target),
        uid: "u".to_owned(),
        generation: 1,
        updates: 0,
        plan: ebb_protocol::id::digest(b"plan"),
        event: None,
        due: time(due),
        failures: 0,
    }
}

fn transition(operation: &StoreOperation) -> TargetTransition {
    let &StoreOperation::Move { target, version, is_alive, due, with_run, ended, .. } = operation else {
        panic!("{operation:?} moves no target")
    };
    let phase = if is_alive { TargetPhase::Starting } else { TargetPhase::Gone };
    let head = TargetHead {
        phase,
        plan: ebb_protocol::id::digest(b"plan"),
        due: due.map(time),
        version: version + 1,
        ..TargetHead::new(KIND, &name(target), "u", time(0))
    };
    let facts = RunFacts {
        kind: KIND.to_owned(),
        name: name(target),
        uid: "u".to_owned(),
        generation: 1,
        plan: head.plan.clone(),
        routing_key: None,
        started: time(0),
        by: Some("token ci".to_owned()),
    };
    let run = with_run.then(|| NewRun { id: run(target), facts, due: time(5) });
    let tombstone = ended.then(|| Tombstone { instance: instance(target), ended: time(1), needed: None });
    TargetTransition { run, tombstone, ..TargetTransition::new(head, (version > 0).then_some(version)) }
}

fn result(number: u8) -> AttemptResult {
    AttemptResult {
        outcome: if number.is_multiple_of(2) { AttemptOutcome::Succeeded } else { AttemptOutcome::Failed },
        at: time(1).0,
        duration_ms: None,
        outputs: OutputStorage::Nothing,
        reason: None,
        evidence: None,
        next: None,
        log: false,
        removal: None,
        sent_by: None,
        made: Vec::new(),
        objects: Vec::new(),
        unanswered: false,
        digest: ebb_protocol::id::digest(&[number]),
    }
}

/// Returns what an operation returned, as text. Callers handle errors by their kind, and the reason may differ.
fn shown<T: Debug>(result: StoreResult<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(StoreError::Retryable { operation, .. }) => format!("retryable: {operation}"),
        Err(error) => format!("{:?}", std::mem::discriminant(&error)),
    }
}

/// Returns values whose order is not promised in one order.
fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}

async fn perform(table: &dyn BothTables, operation: &StoreOperation) -> String {
    match operation.clone() {
        StoreOperation::Move { target, with_plan, .. } => {
            let transition = transition(operation);
            match with_plan {
                true => shown(table.begin_instance(&transition, &instance(target), b"{}").await),
                false => shown(table.move_target(&transition).await),
            }
        }
        StoreOperation::PutTombstone { target, ended } => {
            let tombstone = Tombstone { instance: instance(target), ended: time(ended), needed: None };
            shown(table.put_tombstone(&tombstone).await)
        }
        StoreOperation::Patch { run: of, shard, conditions, changes } => {
            shown(table.patch_run(&run(of), &Patch { shard: Shard(shard), conditions, changes }).await)
        }
        StoreOperation::SetRunPlan { run: of } => shown(table.set_run_plan(&run(of), "sha256:other").await),
        StoreOperation::Update { run: of, unit, attempt, update } => {
            shown(table.update_attempt(&run(of), Unit(unit), Attempt(attempt), &update).await)
        }
        StoreOperation::Accept { run: of, unit, attempt, at } => {
            let shard = Shard(Shard::of(Unit(unit)).0.0);
            shown(table.record_accepted(&run(of), shard, &[(Unit(unit), Attempt(attempt))], time(at)).await)
        }
        StoreOperation::Result { run: of, unit, attempt, result: number } => {
            shown(table.put_result(&run(of), Unit(unit), Attempt(attempt), &result(number)).await)
        }
        StoreOperation::MarkOutputs { run: of } => shown(table.mark_outputs(&run(of)).await),
        StoreOperation::PutDesired { key, version, due } => {
            let key = DesiredKey { source: "s".to_owned(), kind: KIND.to_owned(), name: name(key), uid: None };
            let desired = DesiredTarget {
                key,
                delivery: format!("d{version}"),
                identity: None,
                time: time(0).0,
                sent: None,
                new_uid: String::new(),
                replaces_due: false,
                document: None,
                is_delete: true,
                recent: Vec::new(),
                result: None,
                result_time: None,
                due: due.map(time),
                version,
            };
            shown(table.put_desired(&desired).await)
        }
        StoreOperation::PutRejections { source, version } => {
            let source = name(source);
            shown(table.put_rejections(&SourceRejections { source, events: Vec::new(), version }).await)
        }
        StoreOperation::PutExpiry { target, due } => shown(table.put_expiry(&expiry(target, due)).await),
        StoreOperation::PostponeExpiry { target, due, to } => {
            shown(table.postpone_expiry(&expiry(target, due), time(to), 1).await)
        }
        StoreOperation::DeleteExpiry { target, due } => shown(table.delete_expiry(&expiry(target, due)).await),
        StoreOperation::ListExpired { now } => {
            let listed = table.list_expired(time(now), 100).await;
            shown(listed.map(|mut due| {
                due.readable.sort_by_key(|expiry| (expiry.due, expiry.subject()));
                due
            }))
        }
        StoreOperation::DeleteRoot { run: of } => shown(table.delete_root(&run(of)).await),
        StoreOperation::DeleteRun { run: of } => shown(table.delete_run(&run(of)).await),
        StoreOperation::DeletePlan { target } => shown(table.delete_plan(&instance(target)).await),
        StoreOperation::RestorePlan { target } => shown(table.restore_plan(&instance(target), b"{ }").await),
        StoreOperation::PutUndelivered { subscription, number } => {
            let item = NamedDocument {
                name: format!("s{subscription}/{number}"),
                document: number.to_string(),
                changed: time(0),
            };
            shown(table.put_undelivered(&item).await)
        }
        StoreOperation::Due { now } => shown(table.query_due(time(now), 100).await.map(sorted)),
    }
}

/// Returns everything that the table returns about the values of this test.
async fn content(table: &dyn BothTables) -> Vec<String> {
    let mut found = Vec::new();
    for target in 0..TARGETS {
        let (run, name) = (run(target), name(target));
        let units: Vec<Unit> = (0..UNITS).map(Unit).collect();
        let desired = DesiredKey { source: "s".to_owned(), kind: KIND.to_owned(), name: name.clone(), uid: None };
        found.extend([
            shown(table.read_target(TargetKey::new(KIND, &name)).await),
            shown(table.read_tombstone(&instance(target)).await),
            shown(table.get_plan(&instance(target)).await),
            shown(table.read_run(&run).await),
            shown(table.read_root(&run).await),
            shown(table.read_records(&run, &units).await),
            shown(table.read_records(&run, &units[1..2]).await),
            shown(table.read_outlines(&run).await),
            shown(table.read_all_records(&run).await),
            shown(table.read_accepted(&run, &units).await.map(sorted)),
            shown(table.read_desired(&desired).await),
            shown(table.read_rejections(&name).await),
            shown(table.list_undelivered(&format!("s{target}/"), 2).await),
            shown(table.count_undelivered(&format!("s{target}"), 2).await),
        ]);
    }
    found.push(shown(table.list_documents(NamedKind::Subscription).await));
    found.push(perform(table, &StoreOperation::ListExpired { now: 100 }).await);
    found.push(perform(table, &StoreOperation::Due { now: 100 }).await);
    found
}

const TARGETS: u8 = 2;
const UNITS: u32 = 3;

fn patches() -> impl Strategy<Value = (Vec<PatchCondition>, Vec<PatchChange>)> {
    let condition = prop_oneof![
        Just(PatchCondition::EpochIs(Epoch::FIRST)),
        (0..UNITS).prop_map(PatchCondition::NotDone),
        (0..3_u64).prop_map(PatchCondition::VersionIs),
    ];
    let change = prop_oneof![
        (0..UNITS).prop_map(PatchChange::AddDone),
        (0..9_u64).prop_map(|due| PatchChange::SetDue(time(due))),
        Just(PatchChange::ClearDue),
        Just(PatchChange::SetPhase(RunPhase::Closed)),
        (0..9_u64).prop_map(|at| PatchChange::AnnounceRemoval(time(at))),
        Just(PatchChange::WithdrawRemoval),
        Just(PatchChange::BumpVersion),
    ];
    (prop::collection::vec(condition, 0..2), prop::collection::vec(change, 1..2))
}

fn operations() -> impl Strategy<Value = StoreOperation> {
    let target = || 0..TARGETS;
    let due = || prop::option::of(0..9_u64);
    let attempt = || (target(), 0..UNITS, 1..3_u32);
    let update = prop_oneof![
        (0..5_u64).prop_map(|at| AttemptUpdate::Started(time(at))),
        (0..5_u64).prop_map(|at| AttemptUpdate::Accepted(time(at))),
        (0..5_u64).prop_map(|at| AttemptUpdate::DispatchAgain(time(at))),
    ];
    prop_oneof![
        6 => (target(), 0..4_u64, any::<bool>(), due(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(target, version, is_alive, due, with_run, with_plan, ended)| StoreOperation::Move {
                target, version, is_alive, due, with_run, with_plan, ended
            }
        ),
        1 => (target(), 0..3_u64).prop_map(|(target, ended)| StoreOperation::PutTombstone { target, ended }),
        4 => (target(), patches()).prop_map(|(run, (conditions, changes))| {
            StoreOperation::Patch { run, shard: Shard::ROOT.0, conditions, changes }
        }),
        1 => target().prop_map(|run| StoreOperation::SetRunPlan { run }),
        2 => (attempt(), update).prop_map(|((run, unit, attempt), update)| {
            StoreOperation::Update { run, unit, attempt, update }
        }),
        1 => (attempt(), 0..5_u64).prop_map(|((run, unit, attempt), at)| {
            StoreOperation::Accept { run, unit, attempt, at }
        }),
        2 => (attempt(), 0..4_u8).prop_map(|((run, unit, attempt), result)| {
            StoreOperation::Result { run, unit, attempt, result }
        }),
        1 => target().prop_map(|run| StoreOperation::MarkOutputs { run }),
        2 => (target(), 1..4_u64, due()).prop_map(|(key, version, due)| StoreOperation::PutDesired { key, version, due }),
        1 => (target(), 1..4_u64).prop_map(|(source, version)| StoreOperation::PutRejections { source, version }),
        1 => (target(), 0..4_u64).prop_map(|(target, due)| StoreOperation::PutExpiry { target, due }),
        1 => (target(), 0..4_u64, 0..4_u64).prop_map(|(target, due, to)| {
            StoreOperation::PostponeExpiry { target, due, to }
        }),
        1 => (target(), 0..4_u64).prop_map(|(target, due)| StoreOperation::DeleteExpiry { target, due }),
        1 => (0..5_u64).prop_map(|now| StoreOperation::ListExpired { now }),
        1 => target().prop_map(|run| StoreOperation::DeleteRoot { run }),
        1 => target().prop_map(|run| StoreOperation::DeleteRun { run }),
        1 => target().prop_map(|target| StoreOperation::DeletePlan { target }),
        1 => target().prop_map(|target| StoreOperation::RestorePlan { target }),
        1 => (target(), 0..4_u8).prop_map(|(subscription, number)| {
            StoreOperation::PutUndelivered { subscription, number }
        }),
        1 => (0..9_u64).prop_map(|now| StoreOperation::Due { now }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_simulated_table_has_the_results_of_the_store(operations in prop::collection::vec(operations(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let bucket = Arc::new(FolderBucket::open(folder.path()).unwrap());
        let store = Store::new(Arc::new(EmbeddedTable::temporary().unwrap()), bucket);
        let simulated = SimTable::new(SimRuntime::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (number, operation) in operations.iter().enumerate() {
                let (wanted, got) = (perform(&store, operation).await, perform(&simulated, operation).await);
                prop_assert_eq!(wanted, got, "operation {}: {:?}", number, operation);
            }
            prop_assert_eq!(content(&store).await, content(&simulated).await);
            Ok(())
        })?;
    }
}
