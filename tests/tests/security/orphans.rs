//! Lists and deletions of the orphans of a cluster. Only owned objects of ended instances are deleted.

use std::sync::Mutex;

use ebb_engine::{EventName, TargetPhase};
use ebb_protocol::api::{DeleteOrphansResponse, OrphanList};
use ebb_protocol::id;
use ebb_protocol::listing::{ClusterListing, ObjectSummary, TaskSummary, UnmanagedObject};
use ebb_protocol::relay::{RelayRequest, RelayResponse, TaskId};
use ebb_store::{NewRun, RunFacts, TargetHead, TargetTransition};
use serde::Deserialize;

use crate::harness::*;
use crate::request_table;

const HOUR: u64 = 3_600_000;

/// A relay that lists given tasks and objects, in two pages, and records the tasks that it deletes.
#[derive(Clone, Default)]
struct OrphanRelay {
    tasks: Arc<Mutex<Vec<TaskSummary>>>,
    unmanaged: Arc<Mutex<Vec<UnmanagedObject>>>,
    deleted: Arc<Mutex<Vec<String>>>,
}

impl OrphanRelay {
    fn respond(&self, request: RelayRequest) -> RelayResponse {
        match request {
            RelayRequest::List { after: None } => RelayResponse::Listing(ClusterListing {
                tasks: self.tasks.lock().unwrap().clone(),
                next_token: Some("2".to_owned()),
                ..ClusterListing::default()
            }),
            RelayRequest::List { after: Some(_) } => RelayResponse::Listing(ClusterListing {
                unmanaged: self.unmanaged.lock().unwrap().clone(),
                errors: vec!["ConfigMap: forbidden".to_owned()],
                ..ClusterListing::default()
            }),
            RelayRequest::Delete(name) => {
                self.tasks.lock().unwrap().retain(|task| task.task != name);
                self.deleted.lock().unwrap().push(name.unit);
                RelayResponse::Done
            }
            other => panic!("{other:?}"),
        }
    }
}

fn object(name: &str, labelled: bool) -> ObjectSummary {
    let uid = format!("uid-{name}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "units", "name": name, "uid": uid, "labelled": labelled,
    });
    serde_json::from_value(object).unwrap()
}

fn unit(name: &str) -> String {
    TaskId::unit_of(&run_id(name, Hook::PreStart), Unit(0))
}

/// Returns a unit of an event whose run does not exist.
fn removed_unit(name: &str) -> String {
    let wake = Hook::Event(EventName::new("wake").unwrap());
    TaskId::unit_of(&run_id(name, wake), Unit(0))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum OwnerKind {
    Us,
    /// This installation, with another callback URL.
    UsElsewhere,
    Others,
}

/// The installation that requested the task, and whether the labels are its own.
type Owner = (OwnerKind, bool);
/// Whether the task is listed, whether it is owned, and whether a scan deletes it.
type Expected = (bool, bool, bool);

/// The current uid of the name, its phase, and the time in this phase. `None` if the target is unknown.
type Target = Option<(String, TargetPhase, u64)>;
/// A name, its target, and the age, the owner and the treatment of its task.
type OrphanCase = (String, Target, u64, Owner, Expected);

fn cases() -> Vec<OrphanCase> {
    request_table::table("security/orphans.yaml", "cases", &[])
}

/// Writes the run of a task, and the present target, into the table.
async fn store_case(harness: &Harness, name: &str, target: Target) {
    let Some((uid, phase, since)) = target else { return };
    let (store, own) = (harness.stack().store(), format!("{name}-uid"));
    let at = Timestamp(now().0 - since);
    let first = TargetHead { generation: 1, version: 1, ..TargetHead::new("sandbox", name, &own, at) };
    let facts = RunFacts {
        kind: "sandbox".to_owned(),
        name: name.to_owned(),
        uid: own.clone(),
        generation: 1,
        plan: id::digest(b"plan"),
        routing_key: None,
        started: at,
        by: None,
    };
    // Not due during the test.
    let run = NewRun { id: run_id(name, Hook::PreStart), facts, due: Timestamp(now().0 + HOUR) };
    let begin = TargetTransition { run: Some(run), ..TargetTransition::new(first.clone(), None) };
    assert!(store.move_target(&begin).await.unwrap());
    let target = TargetHead { uid, phase, version: 2, ..first };
    let moved = TargetTransition::new(target, Some(1));
    assert!(store.move_target(&moved).await.unwrap());
}

async fn harness() -> (Harness, OrphanRelay, TestReceiver) {
    let relay = OrphanRelay::default();
    let handler = relay.clone();
    let (harness, server) = Harness::with_relay("eu", move |request| handler.respond(request)).await;
    let (callback, elsewhere) = (harness.stack().env().settings.callback_url.clone(), "https://other/v1/callbacks");
    let own = harness.stack().env().settings.installation.clone();
    for (name, target, age_ms, (owner, labelled), _) in cases() {
        store_case(&harness, &name, target).await;
        // For `Us`, the callback URL identifies the installation.
        let (callback, installation) = match owner {
            OwnerKind::Us => (callback.clone(), String::new()),
            OwnerKind::UsElsewhere => (elsewhere.to_owned(), own.clone()),
            OwnerKind::Others => (elsewhere.to_owned(), "others".to_owned()),
        };
        relay.tasks.lock().unwrap().push(TaskSummary {
            task: TaskId { unit: unit(&name), attempt: 1 },
            phase: "acknowledged".to_owned(),
            instance: instance(&name),
            callback,
            installation,
            age_ms,
            objects: vec![object(&name, labelled)],
        });
    }
    // Labels without a record: of an active instance, of an ended one, of the removed run of an event of both, and of no run.
    for (name, unit) in [
        ("of-active", unit("active")),
        ("of-gone", unit("gone")),
        ("of-active-event", removed_unit("active")),
        ("of-gone-event", removed_unit("gone")),
        ("forged", "x\u{1b}[2J".to_owned()),
    ] {
        let unmanaged = UnmanagedObject { unit, age_ms: 2 * HOUR, object: object(name, true) };
        relay.unmanaged.lock().unwrap().push(unmanaged);
    }
    (harness, relay, server)
}

pub(crate) async fn only_owned_orphans_are_deleted() {
    let (harness, relay, _server) = harness().await;
    let list: OrphanList = harness.get("/v1/orphans").await.is(200).json();
    let of = |name: &str| list.orphans.iter().find(|orphan| orphan.name == name);
    let cases = cases();
    for (name, .., (is_listed, is_owned, _)) in &cases {
        assert_eq!(of(name).map(|orphan| orphan.owned), is_listed.then_some(*is_owned), "{name}");
    }
    assert_eq!((of("of-active"), of("of-active-event")), (None, None));
    for (name, text) in [("gone", "sandbox/gone"), ("of-gone-event", "sandbox/gone"), ("of-gone", "no record")] {
        assert!(of(name).unwrap().reason.contains(text), "{list:?}");
    }
    let forged = of("forged").unwrap();
    assert!(!forged.reason.contains('\u{1b}') && !forged.instance.contains('\u{1b}'), "{forged:?}");
    assert_eq!((&*list.errors[0].cluster, &*list.errors[0].reason), ("eu", "ConfigMap: forbidden"));

    // Requests delete what they name, if it is owned.
    for body in [json!({}), json!({"uids": "all"}), json!({"uids": [], "force": true})] {
        harness.post("/v1/orphans/delete", body).await.is_problem(400, "invalid-json");
    }
    let names = |is_chosen: fn(&OrphanCase) -> bool| {
        cases.iter().filter(|case| is_chosen(case)).map(|(name, ..)| name.as_str()).collect::<Vec<_>>()
    };
    let scanned = names(|(.., (_, _, is_deleted))| *is_deleted);
    let requested = names(|(.., (_, is_owned, is_deleted))| *is_owned && !is_deleted);
    let others = ["active", "x", "of-active", "of-gone", "forged", "relabelled"];
    for (uids, expected) in [(vec![], vec![]), ([&requested[..], &others].concat(), requested.clone())] {
        let uids: Vec<String> = uids.iter().map(|name| format!("uid-{name}")).collect();
        let response = harness.post("/v1/orphans/delete", json!({ "uids": uids })).await;
        let deleted = response.is(200).json::<DeleteOrphansResponse>().deleted.into_iter().map(|orphan| orphan.name);
        assert_eq!(deleted.collect::<Vec<_>>(), expected);
    }
    // Scans delete the others after an hour. The next one is not due yet.
    for expected in [scanned.len(), 0] {
        assert_eq!(ebb_flow::sweep::orphans::scan(harness.stack().env()).await.unwrap(), expected);
    }
    let deleted: Vec<String> = requested.into_iter().chain(scanned).map(unit).collect();
    assert_eq!(*relay.deleted.lock().unwrap(), deleted);
}
