use crate::{Objects as _, Plans as _, PluginItem, ReadPlugins as _, WritePlugins as _};
use ebb_wire::engine::Timestamp;
use ebb_wire::id::digest;

use super::world::World;

pub(super) async fn plans_are_kept_in_the_table_or_the_bucket(world: World) {
    for size in [0, 1024, 1025, 700_000] {
        let plan = vec![b'x'; size];
        let key = digest(&plan);
        assert_eq!(world.store.get_plan(&key).await.unwrap(), None);
        world.store.put_plan(&key, &plan).await.unwrap();
        world.store.put_plan(&key, &plan).await.unwrap();
        assert_eq!(world.store.get_plan(&key).await.unwrap(), Some(plan.clone()));
        let object = world.store.get_object(&format!("plans/{key}")).await.unwrap();
        assert_eq!(object.is_some(), size > 1024, "{size}");
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

    assert!(store.delete_plugin("acme/db", "1.0.0").await.unwrap());
    assert!(!store.delete_plugin("acme/db", "1.0.0").await.unwrap());
    assert_eq!(store.list_plugins().await.unwrap(), [bare(&large), bare(&other)]);
}
