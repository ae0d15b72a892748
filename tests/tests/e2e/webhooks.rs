//! Units that are requests: one answered at once, one called back for, one asked again.

use ebb_protocol::api::{TargetState, UnitState};

use crate::example_service::ExampleService;
use crate::s3::value;
use crate::workdir::{Workdir, example, until};

pub(crate) const SANDBOX: &str = "search-pr-9";

/// What the receiver has seen in a whole life.
fn whole_life(receiver: &ExampleService) {
    let requests = receiver.requests();
    let lines: Vec<&str> = requests.iter().map(|request| request.line.as_str()).collect();
    let tenant = requests.iter().find(|request| request.line == "POST /tenants").unwrap();
    let key = tenant.body["key"].as_str().unwrap();
    assert_eq!((&tenant.body["sandbox"], &tenant.body["plan"]), (&SANDBOX.into(), &"large".into()));
    let expected = [
        ("DELETE /certificates/KEY".replace("KEY", key), 1),
        ("DELETE /indexes/tenant-7".to_owned(), 1),
        ("DELETE /tenants/KEY".replace("KEY", key), 1),
        ("POST /certificates".to_owned(), 3),
        ("POST /indexes".to_owned(), 1),
        ("POST /tenants".to_owned(), 1),
    ];
    assert_eq!(receiver.counts(), expected.clone().into());
    let place = |line: &str| lines.iter().position(|&other| other == line).unwrap();
    let last_post = lines.iter().rposition(|line| line.starts_with("POST ")).unwrap();
    let first_delete = lines.iter().position(|line| line.starts_with("DELETE ")).unwrap();
    assert!(last_post < first_delete, "{lines:#?}");
    assert!(place("POST /tenants") < place("POST /indexes"), "{lines:#?}");
    assert!(place("DELETE /indexes/tenant-7") < place(&expected[2].0), "{lines:#?}");
    // Asked again is the same try: a receiver knows the request by its id, and what it makes by the key.
    let asked: Vec<_> = requests.iter().filter(|request| request.line == "POST /certificates").collect();
    for name in ["webhook-id", "idempotency-key"] {
        assert!(asked.iter().all(|request| request.header(name) == asked[0].header(name)), "{name}: {asked:#?}");
    }
    assert_ne!(asked[0].header("idempotency-key"), tenant.header("idempotency-key"));
}

#[tokio::test]
async fn dev_apply_and_delete() {
    let place = Workdir::new();
    let receiver = ExampleService::start(place.state().join("keys.json")).await;
    let dev = place.dev().await;
    let set = format!("receiver={}", receiver.url());
    place.ebb(&["plugin", "apply", "-f", &example("webhooks/plugin.yaml"), "--set", &set]).await.done();
    place.ebb(&["sandbox", "apply", "-f", &example("webhooks/sandbox.yaml"), "--wait=false"]).await.done();

    // Everything else is done: only the callback is missing.
    let seen = until("the other two units", async || {
        let seen = place.get(SANDBOX).await;
        let done = |unit: &&ebb_protocol::api::UnitDetail| unit.state == UnitState::Succeeded;
        (seen.runs.first()?.units.iter().filter(done).count() == 2).then_some(seen)
    })
    .await;
    let unit = seen.runs[0].units.iter().find(|unit| unit.state != UnitState::Succeeded).unwrap();
    assert_eq!((unit.key.as_str(), unit.state), ("services/callback", UnitState::Running));
    assert_eq!((seen.info.phase, seen.info.expires.is_some()), (TargetState::Starting, true));
    assert_eq!(receiver.counts()["POST /indexes"], 1);
    receiver.call_back();
    place.reaches(SANDBOX, TargetState::Ready).await;
    let got = place.ebb(&["sandbox", "get", SANDBOX]).await.done();
    assert_eq!(value(&got.stdout, "services.tenant"), "tenant-7");
    assert_eq!(value(&got.stdout, "SEARCH_ENDPOINT"), "index-7.search.test:9200");
    assert_eq!(value(&got.stdout, "CERTIFICATE"), "certificate-7");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    whole_life(&receiver);
    assert_eq!(receiver.called_back(), [204]);
    dev.stop().await;
}
