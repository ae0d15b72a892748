//! What a release has stored goes on with this version: lives that wait, stop, are stuck; a relay's mail; tokens that others
//! hold. `tests/fixtures/stored/RELEASE` holds it.
//!
//! `EBB_STORED=write cargo test --workspace --test stored` writes the folder of the version that is built.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod fixture;
mod later;
mod outside;
mod past;
mod world;

use std::path::PathBuf;

use fixture::Stored;
use world::World;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/stored"))
}

/// `0.1` of `0.1.0`: patches of a release store what it stores.
fn release() -> String {
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_version_stores_goes_on() {
    let stored = past::stored().await;
    if std::env::var("EBB_STORED").is_ok_and(|wish| wish == "write") {
        stored.write(&folder().join(release()));
    }
    later::goes_on(&stored).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_release_stored_goes_on() {
    let releases: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(releases.iter().any(|path| path.ends_with(release())), "{} stores nothing yet", release());
    for release in releases {
        let went = later::goes_on(&Stored::read(&release)).await;
        assert!(went.is_ok(), "what {} has stored: {:#}", release.display(), went.unwrap_err());
    }
}

/// A version that calls an attribute something else does not go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_is_noticed() {
    let stored = Stored::read(&folder().join(release()));
    for (kind, attribute) in [("v", "dg"), ("p", "o"), ("t", "tv"), ("r h", "plan"), ("mail", "end")] {
        let renamed = stored.renamed(kind, attribute);
        assert_ne!(renamed.table, stored.table, "no {kind} has {attribute}");
        assert!(later::goes_on(&renamed).await.is_err(), "nobody reads {attribute} of {kind}");
    }
}

/// A version that is put back finds plans of a format that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_later_format_is_left_alone() {
    let stored = Stored::read(&folder().join(release()));
    let mut newer = stored.clone();
    newer.plans_of_version(2);
    let world = World::with(&newer).await;
    let refused = later::complete(&world, &stored.outside.tokens["waiting wait"], "code").await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("format version 2; this program reads version 1"), "{refused}");
    assert_eq!(Stored::of(&world).await.table, newer.table, "something was written");
}
