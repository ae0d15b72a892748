use crate::{Expiries as _, Objects as _, Plans as _, PluginItem, ReadPlugins as _, WritePlugins as _};
use ebb_wire::engine::Timestamp;
use ebb_wire::id::digest;

use super::proxy::Fault;
use super::world::World;

pub(super) async fn plans_are_kept_in_the_table_or_the_bucket(world: World) {
    // Random bytes cannot be compressed.
    let random = |size: usize| -> Vec<u8> { std::iter::repeat_with(rand::random::<u8>).take(size).collect() };
    for (plan, is_object) in [
        (vec![], false),
        (random(1024), false),
        (random(1025), true),
        (random(700_000), true),
        (vec![b'x'; 700_000], false),
    ] {
        let size = plan.len();
        let key = digest(&plan);
        assert_eq!(world.store.get_plan(&key).await.unwrap(), None);
        world.store.put_plan(&key, &plan, "k1").await.unwrap();
        let object = object(&world, &key).await;
        world.store.put_plan(&key, &plan, "k1").await.unwrap();
        assert_eq!(world.store.get_plan(&key).await.unwrap(), Some(plan.clone()));
        assert_eq!(object.is_some(), is_object, "{size}");
        let Some(object) = object else { continue };
        // An object that is lost is there again with the next life.
        world.store.bucket.remove(&object).await.unwrap();
        assert!(world.store.get_plan(&key).await.is_err());
        world.store.put_plan(&key, &plan, "k2").await.unwrap();
        assert_eq!(world.store.get_plan(&key).await.unwrap(), Some(plan.clone()));
        world.store.bucket.remove(&object).await.unwrap();
        world.store.restore_plan(&key, &plan).await.unwrap();
        assert_eq!(world.store.get_plan(&key).await.unwrap(), Some(plan));
    }
}

/// The key of a plan's object.
async fn object(world: &World, plan: &str) -> Option<String> {
    let item = world.item(&format!("p#{plan}"), "h").await.unwrap();
    item.get("o").map(|key| key.as_s().unwrap().clone())
}

pub(super) async fn a_plan_stays_until_its_last_life_releases_it(world: World) {
    for size in [10, 2_000] {
        let plan: Vec<u8> = std::iter::repeat_with(rand::random::<u8>).take(size).collect();
        let key = digest(&plan);
        for life in ["k1", "k2", "k2"] {
            world.store.put_plan(&key, &plan, life).await.unwrap();
        }
        let former = object(&world, &key).await;
        for life in ["k3", "k1", "k1"] {
            world.store.release_plan(&key, life).await.unwrap();
            assert_eq!(world.store.get_plan(&key).await.unwrap(), Some(plan.clone()));
        }
        for _ in 0..2 {
            world.store.release_plan(&key, "k2").await.unwrap();
            assert_eq!(world.store.get_plan(&key).await.unwrap(), None);
        }
        if let Some(former) = former {
            assert_eq!(world.store.get_object(&former).await.unwrap(), None);
            world.store.put_plan(&key, &plan, "k4").await.unwrap();
            assert_ne!(
                object(&world, &key).await,
                Some(former),
                "an object that is being removed is another one"
            );
        }
    }
}

/// The item is deleted and the reply lost: the object goes too, and that of a plan which is kept again stays.
pub(super) async fn an_object_of_a_plan_is_removed_when_a_reply_is_lost(world: World) {
    let plan: Vec<u8> = std::iter::repeat_with(rand::random::<u8>).take(2_000).collect();
    let (proxy, store) = world.proxy().await;
    let key = digest(&plan);
    store.put_plan(&key, &plan, "k1").await.unwrap();
    let former = object(&world, &key).await.unwrap();
    proxy.plan("DeleteItem", [Fault::LoseReply]);
    store.release_plan(&key, "k1").await.unwrap();
    assert_eq!(proxy.hits(), 1);
    assert_eq!(store.get_object(&former).await.unwrap(), None);
    // A release that died before it removed the object is repeated.
    store.put_object(&former, plan.clone()).await.unwrap();
    store.release_plan(&key, "k1").await.unwrap();
    assert_eq!(store.get_object(&former).await.unwrap(), None);
    // Another life keeps the plan before the repetition.
    store.put_object(&former, plan.clone()).await.unwrap();
    store.put_plan(&key, &plan, "k2").await.unwrap();
    store.release_plan(&key, "k1").await.unwrap();
    assert_eq!(store.get_object(&former).await.unwrap(), None);
    assert_eq!(store.get_plan(&key).await.unwrap(), Some(plan));
}

pub(super) async fn a_plan_of_many_lives_or_that_was_lost_stays(world: World) {
    let lives: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    for life in &lives {
        world.store.put_plan("sha256:many", b"{}", life).await.unwrap();
    }
    world.store.put_plan("sha256:lost", b"{}", &lives[0]).await.unwrap();
    world.store.restore_plan("sha256:lost", b"{}").await.unwrap();
    world.store.put_plan("sha256:lost", b"{}", &lives[1]).await.unwrap();
    for plan in ["sha256:many", "sha256:lost"] {
        for life in &lives {
            world.store.release_plan(plan, life).await.unwrap();
        }
        assert_eq!(world.store.get_plan(plan).await.unwrap(), Some(b"{}".to_vec()));
    }
}

pub(super) async fn objects_are_replaced(world: World) {
    assert_eq!(world.store.get_object("a/b").await.unwrap(), None);
    world.store.put_object("a/b", vec![1]).await.unwrap();
    world.store.put_object("a/b", vec![2, 3]).await.unwrap();
    assert_eq!(world.store.get_object("a/b").await.unwrap(), Some(vec![2, 3]));
}

pub(super) fn plugin(name: &str, version: &str, size: usize) -> PluginItem {
    let document = format!("{name}@{version}{}", "x".repeat(size));
    PluginItem {
        name: name.into(),
        version: version.into(),
        dialect: "ebb".into(),
        digest: digest(document.as_bytes()),
        document,
        created: Timestamp(7),
        withdrawn: None,
    }
}

pub(super) async fn plugin_versions_are_published_once(world: World) {
    let store = &world.store;
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

pub(super) async fn a_withdrawn_version_is_in_no_list_and_stays_readable(world: World) {
    let store = &world.store;
    let (one, two) = (plugin("db", "1.0.0", 10), plugin("db", "1.1.0", 200_000));
    for plugin in [&one, &two] {
        assert!(store.put_plugin(plugin).await.unwrap());
        assert!(store.withdraw_plugin("db", &plugin.version, Timestamp(8)).await.unwrap());
        assert!(!store.withdraw_plugin("db", &plugin.version, Timestamp(9)).await.unwrap());
        let kept = PluginItem { withdrawn: Some(Timestamp(8)), ..plugin.clone() };
        assert_eq!(store.get_plugin("db", &plugin.version).await.unwrap(), Some(kept));
    }
    assert!(!store.withdraw_plugin("db", "2.0.0", Timestamp(8)).await.unwrap());
    assert!(!store.withdraw_plugin(&"x".repeat(2048), "1.0.0", Timestamp(8)).await.unwrap());
    assert_eq!(store.get_plugin("db", "2.0.0").await.unwrap(), None);
    assert_eq!(store.list_plugins().await.unwrap(), []);
    let listed = store.list_versions("db").await.unwrap();
    assert_eq!(listed.iter().filter(|plugin| plugin.withdrawn == Some(Timestamp(8))).count(), 2);
    // The same content may be published again, another one may not.
    let changed = PluginItem { digest: digest(b"other"), document: "other".into(), ..one.clone() };
    assert!(!store.put_plugin(&changed).await.unwrap());
    assert_eq!(store.list_plugins().await.unwrap(), []);
    assert!(store.put_plugin(&one).await.unwrap());
    let bare = PluginItem { document: String::new(), ..one.clone() };
    assert_eq!(store.list_plugins().await.unwrap(), [bare]);
    assert_eq!(store.get_plugin("db", "1.0.0").await.unwrap(), Some(one));
}
