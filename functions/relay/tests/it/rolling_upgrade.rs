//! Upgrades, kills and a pause of the relay that works, while scripts run. Another relay of the release takes its place.

use std::collections::BTreeSet;

use futures::future::join3;
use futures::stream::{StreamExt as _, iter};
use k8s_openapi::api::coordination::v1::Lease;

use crate::fixture::*;
use crate::installed::InstalledRelay;

const SCRIPTS: u32 = 200;
const ROUNDS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(4);

/// Sends a signal to the process of a pod, which its environment names. Returns false if there is none.
fn signal(signal: &str, pod: &str) -> bool {
    let command = format!("kill -{signal} $(grep -szxFl EBB_RELAY_POD={pod} /proc/*/environ | cut -d/ -f3)");
    std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success()
}

/// Each script runs once and has one result, whichever relay starts it, receives its report and sends its callback.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_outlive_the_relays_that_start_them() {
    let relay = InstalledRelay::new("rolling", &json!({"maxConcurrentTasks": 20, "heartbeatSeconds": 1})).await;
    let (client, own) = (&relay.namespaces.client, &*relay.namespaces.relay);
    let leases: Api<Lease> = Api::namespaced(client.clone(), own);
    let leader = async |former: &str| {
        until("a relay with the lease", async || {
            let holder = leases.get("ebb-relay").await.ok()?.spec?.holder_identity?;
            (holder != former).then_some(holder)
        })
        .await
    };
    let jobs: Api<Job> = Api::namespaced(client.clone(), &relay.namespaces.units);
    let units: Vec<String> = (0..SCRIPTS).map(|number| format!("unit-{number}")).collect();
    let started = iter(&units).for_each_concurrent(16, async |unit| {
        let task = script(&name(unit, 1), &format!("sleep 5; echo {unit}"));
        until("a state", async || match relay.ensure(unit, task.clone()).await {
            RelayResponse::State(_) => Some(()),
            RelayResponse::Unavailable(_) => None,
            other => panic!("{other:?}"),
        })
        .await;
    });
    let disturbed = async {
        for _ in 0..ROUNDS {
            let former = leader("").await;
            relay.cluster.run("kubectl", &["rollout", "restart", "deployment/ebb-relay", "-n", own], "").unwrap();
            leader(&former).await;
            tokio::time::sleep(PAUSE).await;
            // An upgrade can end the process meanwhile.
            until("a killed relay", async || signal("KILL", &leader("").await).then_some(())).await;
            tokio::time::sleep(PAUSE).await;
        }
        let paused = leader("").await;
        assert!(signal("STOP", &paused));
        leader(&paused).await;
        tokio::time::sleep(PAUSE).await;
        signal("CONT", &paused);
    };
    let mut created = BTreeSet::new();
    let ended = async {
        for unit in &units {
            let task = token(&name(unit, 1));
            until(&format!("the result of {unit}"), async || {
                created.extend(jobs.list(&ListParams::default()).await.unwrap().iter().map(|job| job.uid().unwrap()));
                (!relay.callbacks.accepted(&task).is_empty()).then_some(())
            })
            .await;
        }
    };
    join3(started, disturbed, ended).await;
    assert_eq!(created.len(), units.len());
    let records: Api<Secret> = Api::namespaced(client.clone(), own);
    until("the end of all tasks", async || {
        let records = records.list(&ListParams::default()).await.ok()?;
        records.iter().all(|record| record.finalizers().is_empty()).then_some(())
    })
    .await;
    for unit in &units {
        let results = relay.callbacks.accepted(&token(&name(unit, 1)));
        let is_expected = |result: &Callback| *result == results[0] && result.log == Some(format!("{unit}\n"));
        assert!(results.iter().all(is_expected), "{results:?}");
    }
    relay.cluster.run("helm", &["uninstall", "ebb", "--wait", "--namespace", own], "").unwrap();
    relay.namespaces.close().await;
}
