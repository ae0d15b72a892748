use super::fixture;
use super::fixture::*;

/// No invocation that began at `AT` is left.
const LATER: Timestamp = Timestamp(AT.0 + 60 * 60 * 1000);

fn random(size: usize) -> Vec<u8> {
    std::iter::repeat_with(rand::random::<u8>).take(size).collect()
}

pub(super) async fn begin(store: &Store, instance: &str, plan: &[u8]) -> bool {
    store.begin_instance(&fixture::begin(instance), instance, plan, AT).await.unwrap()
}

pub(super) async fn plans_are_stored_in_the_table_or_the_bucket(fixture: StoreFixture) {
    let store = &fixture.store;
    for (number, (plan, objects)) in
        [(vec![], 0), (random(1024), 0), (random(1025), 1), (random(700_000), 1), (vec![b'x'; 700_000], 0)]
            .into_iter()
            .enumerate()
    {
        let instance = format!("instance{number}");
        assert_eq!(store.get_plan(&instance).await.unwrap(), None);
        assert!(begin(store, &instance, &plan).await);
        assert_eq!(store.get_plan(&instance).await.unwrap(), Some(plan.clone()));
        assert_eq!(fixture.objects_of_plans().len(), objects, "{number}");
        // A lost object is restored.
        for object in fixture.objects_of_plans() {
            store.bucket.remove(&format!("plans/{instance}/{object}")).await.unwrap();
            assert!(store.get_plan(&instance).await.is_err());
        }
        store.restore_plan(&instance, &plan).await.unwrap();
        assert_eq!(store.get_plan(&instance).await.unwrap(), Some(plan));
        for _ in 0..2 {
            store.delete_plan(&instance).await.unwrap();
            assert_eq!(store.get_plan(&instance).await.unwrap(), None);
            assert_eq!(fixture.objects_of_plans(), Vec::<String>::new(), "{number}");
        }
    }
}

async fn remove_unnamed(store: &Store, now: Timestamp) {
    for expiry in store.list_expired(now, 10).await.unwrap().objects {
        store.remove_unnamed_object(&expiry).await.unwrap();
    }
}

/// A plan is stored with its target or not at all.
pub(super) async fn a_rejected_instance_leaves_no_plan(fixture: StoreFixture) {
    let store = &fixture.store;
    for (number, plan) in [random(10), random(2_000)].into_iter().enumerate() {
        let instance = format!("instance{number}");
        assert!(begin(store, &instance, &plan).await);
        let objects = fixture.objects_of_plans();
        assert!(!begin(store, &instance, b"{}").await);
        let other = TargetHead { uid: "u2".to_owned(), ..target("sandbox", &instance) };
        let mut other = TargetTransition::new(other, None);
        assert!(!store.begin_instance(&other, "other", &plan, AT).await.unwrap());
        assert_eq!(store.get_plan("other").await.unwrap(), None);
        assert_eq!(fixture.objects_of_plans(), objects);
        assert_eq!(store.get_plan(&instance).await.unwrap(), Some(plan.clone()));
        other.expected_version = Some(1);
        assert!(store.begin_instance(&other, "other", &plan, AT).await.unwrap());
        assert_eq!(store.get_plan("other").await.unwrap(), Some(plan));
        store.delete_plan("other").await.unwrap();
        assert_eq!(fixture.objects_of_plans(), objects);
        // The item of the plan names its object.
        remove_unnamed(store, LATER).await;
        assert_eq!(fixture.objects_of_plans(), objects);
    }
}

/// A writer stops after it has written the object of a plan, and its request is never repeated.
pub(super) async fn an_object_without_an_instance_is_removed(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy();
    assert!(begin(&store, "a", &random(2_000)).await);
    let kept = fixture.objects_of_plans();
    proxy.plan("TransactWriteItems", [ProxyFault::error(400, "AccessDeniedException")]);
    store.begin_instance(&fixture::begin("b"), "b", &random(2_000), AT).await.unwrap_err();
    assert_eq!(proxy.hits(), 1);
    assert_eq!(fixture.objects_of_plans().len(), 2);
    remove_unnamed(&store, Timestamp(LATER.0 - 1)).await;
    assert_eq!(fixture.objects_of_plans().len(), 2);
    remove_unnamed(&store, LATER).await;
    assert_eq!(fixture.objects_of_plans(), kept);
    assert_eq!(store.list_expired(LATER, 10).await.unwrap(), DueExpiries::default());
}

/// The object of a plan is removed even if the response to the deletion of the item is lost, or the writer stops before
/// it removes the object.
pub(super) async fn the_object_of_a_plan_is_removed_after_a_lost_response(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy();
    assert!(begin(&store, "a", &random(2_000)).await);
    let [object] = fixture.objects_of_plans().try_into().unwrap();
    proxy.losing("DeleteItem", store.delete_plan("a")).await.unwrap();
    assert_eq!(fixture.objects_of_plans(), Vec::<String>::new());
    store.bucket.put_object(&format!("plans/a/{object}"), vec![1]).await.unwrap();
    store.delete_plan("a").await.unwrap();
    assert_eq!(fixture.objects_of_plans(), Vec::<String>::new());
}

pub(super) async fn objects_are_replaced(fixture: StoreFixture) {
    assert_eq!(fixture.store.bucket.get_object("a/b").await.unwrap(), None);
    fixture.store.bucket.put_object("a/b", vec![1]).await.unwrap();
    fixture.store.bucket.put_object("a/b", vec![2, 3]).await.unwrap();
    assert_eq!(fixture.store.bucket.get_object("a/b").await.unwrap(), Some(vec![2, 3]));
}

pub(super) fn plugin(name: &str, version: &str, size: usize) -> PluginItem {
    let document = format!("{name}@{version}{}", "x".repeat(size));
    let (name, version, dialect) = (name.into(), version.into(), "ebb".into());
    let digest = digest(document.as_bytes());
    PluginItem { name, version, dialect, digest, document, created: Timestamp(7), withdrawn: None }
}

pub(super) async fn plugin_versions_are_published_once(StoreFixture { store, .. }: StoreFixture) {
    let (one, large) = (plugin("acme/db", "1.0.0", 10), plugin("acme/db", "1.1.0", 200_000));
    let other = plugin("b", "1.0.0", 0);
    for plugin in [&one, &large, &other] {
        assert!(store.put_plugin(plugin).await.unwrap());
        let read = store.get_plugin(&plugin.name, &plugin.version).await.unwrap();
        assert_eq!(read.as_ref(), Some(plugin));
    }
    let changed = PluginItem { digest: digest(b"other"), document: "other".into(), ..one.clone() };
    assert!(!store.put_plugin(&changed).await.unwrap());
    assert_eq!(store.get_plugin("acme/db", "1.0.0").await.unwrap(), Some(one.clone()));
    assert_eq!(store.get_plugin("acme/db", "2.0.0").await.unwrap(), None);

    let bare = |plugin: &PluginItem| PluginItem { document: String::new(), ..plugin.clone() };
    assert_eq!(store.list_versions("acme/db").await.unwrap(), [bare(&one), bare(&large)]);
    assert_eq!(store.list_plugins().await.unwrap(), [bare(&one), bare(&large), bare(&other)]);
    assert_eq!(store.list_versions("c").await.unwrap(), []);
}

pub(super) async fn a_withdrawn_version_is_unlisted_and_readable(StoreFixture { store, .. }: StoreFixture) {
    let (one, two) = (plugin("db", "1.0.0", 10), plugin("db", "1.1.0", 200_000));
    for plugin in [&one, &two] {
        assert!(store.put_plugin(plugin).await.unwrap());
        assert!(store.withdraw_plugin("db", &plugin.version, Timestamp(8)).await.unwrap());
        assert!(store.withdraw_plugin("db", &plugin.version, Timestamp(9)).await.unwrap());
        let stored = PluginItem { withdrawn: Some(Timestamp(8)), ..plugin.clone() };
        assert_eq!(store.get_plugin("db", &plugin.version).await.unwrap(), Some(stored));
    }
    assert!(!store.withdraw_plugin("db", "2.0.0", Timestamp(8)).await.unwrap());
    assert!(!store.withdraw_plugin(&"x".repeat(2048), "1.0.0", Timestamp(8)).await.unwrap());
    assert_eq!(store.get_plugin("db", "2.0.0").await.unwrap(), None);
    assert_eq!(store.list_plugins().await.unwrap(), []);
    let listed = store.list_versions("db").await.unwrap();
    assert_eq!(listed.iter().filter(|plugin| plugin.withdrawn == Some(Timestamp(8))).count(), 2);
    // The same document may be published again, another one may not.
    let changed = PluginItem { digest: digest(b"other"), document: "other".into(), ..one.clone() };
    assert!(!store.put_plugin(&changed).await.unwrap());
    assert_eq!(store.list_plugins().await.unwrap(), []);
    assert!(store.put_plugin(&one).await.unwrap());
    let bare = PluginItem { document: String::new(), ..one.clone() };
    assert_eq!(store.list_plugins().await.unwrap(), [bare]);
    assert_eq!(store.get_plugin("db", "1.0.0").await.unwrap(), Some(one));
}
