//! The example `mixed` with all kinds of units and an installed relay. `kill_cluster` runs it without kills and with them.

use std::collections::BTreeSet;

use crate::example_service::ExampleService;
use crate::prelude::*;

pub(crate) const SANDBOX: &str = "shop-pr-5";

/// A relay, a working directory whose units it runs, and the service that they call.
pub(crate) struct MixedSetup {
    pub(crate) relay: InstalledRelay,
    pub(crate) workdir: Workdir,
    pub(crate) service: ExampleService,
}

impl MixedSetup {
    pub(crate) async fn new(title: &str) -> Self {
        // The chart grants the rights to these kinds.
        let policy = json!({"policy": {"kinds": ["Job.batch", "Secret"]}});
        let relay = InstalledRelay::new(cluster().await, title, policy).await;
        let workdir = workdir_setup::with_relay(&relay);
        let keys = workdir.state().join("keys.json");
        let service = ExampleService::start(keys).await;
        Self { relay, workdir, service }
    }

    pub(crate) async fn publish(&self) {
        let service = format!("service={}", self.service.receiver.url());
        let for_pods = self.service.receiver.url().replace("127.0.0.1", &self.relay.cluster.host);
        let for_pods = format!("service-for-pods={for_pods}");
        // Every test cluster has this image with curl.
        let curl = "curl=ebb.test/debian:1".to_owned();
        let (plugin, sets) = (example("mixed/plugin.yaml"), [service, for_pods, curl]);
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let apply = ["apply", "-f", &plugin].into_iter().chain(sets).collect::<Vec<_>>();
        self.workdir.ebb(&apply).await.done();
    }

    /// Checks that each object was created once, and that no attempt of a script ran twice.
    pub(crate) fn assert_created(&self, target: &TargetDetail) {
        for (name, expected) in [("tenant", "tenant-7"), ("search", "index-7.search.test:9200"), ("goods", "3")] {
            assert_eq!(output(target, "shop", name), expected);
        }
        let expected = [("/goods/tenant-7", 3), ("/indexes", 1), ("/openings", 1), ("/tenants", 1)];
        assert_eq!(self.service.created(), expected.map(|(path, count)| (path.to_owned(), count)));
        // A Job read the Secret with the tenant, and the password.
        let opening = self.service.requests().into_iter().find(|request| request.path() == "/openings").unwrap();
        assert_eq!(opening.body, "tenant-7 opens in SEK with 32 characters");
        self.assert_no_attempt_ran_twice();
    }

    fn assert_no_attempt_ran_twice(&self) {
        let mut attempts = BTreeSet::new();
        for request in self.service.requests().iter().filter(|it| it.path().starts_with("/goods/")) {
            let attempt = match request.body.as_str() {
                Some(goods_and_attempt) => goods_and_attempt.to_owned(),
                None => format!("clear {}", request.header("ebb-attempt")),
            };
            assert!(attempts.insert(attempt), "{request:?} was repeated");
        }
    }

    pub(crate) async fn assert_nothing_remains(&self) {
        self.assert_no_attempt_ran_twice();
        // The unit that opens a shop has no undo.
        assert_eq!(self.service.remaining(), ["openings"]);
        let last = self.service.requests().pop().unwrap();
        assert!(last.line.starts_with("DELETE /tenants/"), "the tenant is deleted last: {last:?}");
        self.relay.wait_until_empty().await;
    }
}
