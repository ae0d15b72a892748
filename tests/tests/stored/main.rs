//! What a release has stored goes on with this version, whatever it was at; and what a later version has stored is left
//! alone. `tests/fixtures/stored/RELEASE` holds what a release stores; [`WRITE`] writes that of the version that is built.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod documents;
mod fixture;
mod later;
mod names;
mod outside;
mod past;
mod renames;
mod rollback;
mod world;

use std::path::PathBuf;

use fixture::Stored;
use tokio::sync::OnceCell;

/// Writes the folder of the version that is built.
const WRITE: &str =
    "EBB_STORED=write cargo test --workspace --test stored -- --exact what_this_version_stores_goes_on";

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/stored"))
}

/// `0.1` of `0.1.0`: patches of a release store what it stores.
fn release() -> String {
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")).to_owned()
}

/// What is in the folder of the version that is built.
fn written() -> Stored {
    Stored::read(&folder().join(release()))
}

async fn stored() -> &'static Stored {
    static STORED: OnceCell<Stored> = OnceCell::const_new();
    STORED.get_or_init(past::stored).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_version_stores_goes_on() {
    let went = later::goes_on(stored().await).await;
    assert!(went.is_ok(), "{:#}", went.unwrap_err());
    if std::env::var("EBB_STORED").is_ok_and(|wish| wish == "write") {
        stored().await.write(&folder().join(release()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_version_stores_is_in_its_folder() {
    let (stores, holds) = (stored().await.shape(), written().shape());
    let new: Vec<_> = stores.difference(&holds).collect();
    let missing: Vec<_> = holds.difference(&stores).collect();
    let folder = folder().join(release());
    assert!(
        new.is_empty() && missing.is_empty(),
        "this version stores {new:?}, which {0} does not have, and not {missing:?}, which it has. If {1} is not out, \
         delete {0} and write it anew: {WRITE}. If it is, this is another release: raise the version first",
        folder.display(),
        release(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_release_stored_goes_on() {
    let releases: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(releases.iter().any(|path| path.ends_with(release())), "{} has no folder: {WRITE}", release());
    for release in releases {
        let went = later::goes_on(&Stored::read(&release)).await;
        assert!(went.is_ok(), "what {} has stored: {:#}", release.display(), went.unwrap_err());
    }
}
