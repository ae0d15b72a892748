//! The example with all kinds of units, by a relay that its chart has installed.

use std::collections::BTreeSet;

use crate::example_service::ExampleService;
use crate::prelude::*;
use crate::scene::output;

pub(crate) const SANDBOX: &str = "shop-pr-5";
/// An image with curl that every cluster has.
const CURL: &str = "ebb.test/debian:1";

/// A relay, a place whose units run by it, and the service that they speak to.
pub(crate) struct MixedSetup {
    pub(crate) relay: InstalledRelay,
    pub(crate) place: Workdir,
    pub(crate) service: ExampleService,
}

impl MixedSetup {
    pub(crate) async fn new(title: &str) -> Self {
        // Those for which the chart alone gives the rights.
        let policy = json!({"policy": {"kinds": ["Job.batch", "Secret"]}});
        let relay = InstalledRelay::new(cluster().await, title, policy).await;
        let place = elsewhere::by(&relay);
        let service = ExampleService::start_everywhere(place.state().join("keys.json")).await;
        Self { relay, place, service }
    }

    /// Publishes the plugin to the server that runs.
    pub(crate) async fn publish(&self) {
        let service = format!("service={}", self.service.url());
        let for_pods = format!("service-for-pods={}", self.service.url_at(&self.relay.cluster.host));
        let curl = format!("curl={CURL}");
        let (plugin, sets) = (example("mixed/plugin.yaml"), [service, for_pods, curl]);
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let apply = ["plugin", "apply", "-f", &plugin].into_iter().chain(sets).collect::<Vec<_>>();
        self.place.ebb(&apply).await.done();
    }

    /// That each thing was made, none of them twice, and that no try of a script ran twice.
    pub(crate) fn made(&self, seen: &TargetDetail) {
        for (name, expected) in [("tenant", "tenant-7"), ("search", "index-7.search.test:9200"), ("goods", "3")] {
            assert_eq!(output(seen, "shop", name), expected);
        }
        let expected = [("/goods/tenant-7", 3), ("/indexes", 1), ("/openings", 1), ("/tenants", 1)];
        assert_eq!(self.service.made(), expected.map(|(path, things)| (path.to_owned(), things)));
        self.no_try_ran_twice();
    }

    fn no_try_ran_twice(&self) {
        let mut seen = BTreeSet::new();
        for request in self.service.requests().iter().filter(|it| it.path().starts_with("/goods/")) {
            let attempt = match request.body.as_str() {
                Some(goods_and_attempt) => goods_and_attempt.to_owned(),
                None => format!("clear {}", request.header("ebb-attempt")),
            };
            assert!(seen.insert(attempt), "{request:?} came twice");
        }
    }

    /// That all of it was taken away, in the service and in the cluster.
    pub(crate) async fn nothing_left(&self) {
        self.no_try_ran_twice();
        // The opening of a shop has no undo.
        assert_eq!(self.service.left(), ["openings"]);
        self.relay.nothing_left().await;
    }
}

#[tokio::test]
async fn a_shop_opens_and_closes() {
    let _served = served().await;
    let shop = MixedSetup::new("mixed").await;
    let MixedSetup { relay, place, service } = &shop;
    let dev = place.dev().await;
    shop.publish().await;
    let ran = place.ebb(&["sandbox", "apply", "-f", &example("mixed/sandbox.yaml")]).await.done();
    assert_eq!(value(&ran.stdout, "shop.tenant"), "tenant-7", "{ran:#?}");
    shop.made(&place.get(SANDBOX).await);
    let opening = service.requests().into_iter().find(|request| request.path() == "/openings").unwrap();
    assert_eq!(opening.body, "tenant-7 opens in SEK with 32 characters");
    let settings = value(&ran.stdout, "shop.settings");
    let secrets = list(relay.cluster, &relay.units, "secrets").unwrap();
    let secret = secrets.iter().find(|secret| secret["metadata"]["name"] == settings).unwrap();
    assert_eq!(secret["data"]["TENANT"], STANDARD.encode("tenant-7"));
    let log = place.ebb(&["logs", SANDBOX, "--unit", "goods"]).await.done();
    assert!(log.stdout.ends_with("brought in cocoa\n"), "{log:#?}");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    shop.nothing_left().await;
    let last = service.requests().pop().unwrap();
    assert!(last.line.starts_with("DELETE /tenants/"), "the tenant goes last: {last:?}");
    dev.stop().await;
    shop.relay.remove();
}
