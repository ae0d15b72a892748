use super::fixture::*;

/// Returns a cluster without a relay.
fn cluster(name: &str, version: u64) -> ClusterItem {
    ClusterItem { name: name.to_owned(), url: None, relay: None, version, ..full_cluster() }
}

pub(super) async fn a_cluster_is_replaced_by_its_next_version(StoreFixture { store, .. }: StoreFixture) {
    assert_eq!(store.list_clusters().await.unwrap(), []);
    let first = cluster("eu", 1_000);
    assert!(store.put_cluster(&first, None).await.unwrap());
    // A repetition counts as written.
    assert!(store.put_cluster(&first, None).await.unwrap());
    for (seen, version) in [(None, 1_001), (Some(999), 1_001), (Some(1_001), 1_002)] {
        let other = ClusterItem { entrypoint_image: "other:1".to_owned(), ..cluster("eu", version) };
        assert!(!store.put_cluster(&other, seen).await.unwrap(), "{seen:?}");
    }
    let second = ClusterItem { name: "eu".to_owned(), version: 1_001, ..full_cluster() };
    assert!(store.put_cluster(&second, Some(1_000)).await.unwrap());
    let others = [cluster("0-a", 1), cluster("zz", 1)];
    for other in &others {
        assert!(store.put_cluster(other, None).await.unwrap());
    }
    let [before, after] = others;
    assert_eq!(store.list_clusters().await.unwrap(), [before, second, after]);
    for expected in [true, false] {
        assert_eq!(store.delete_cluster("eu").await.unwrap(), expected);
    }
    // A write that follows a deletion does not bring the cluster back.
    assert!(!store.put_cluster(&cluster("eu", 1_002), Some(1_001)).await.unwrap());
    assert_eq!(store.list_clusters().await.unwrap().len(), 2);
}
