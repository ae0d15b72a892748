//! That the lives which go on read what is stored: what is called otherwise is noticed.

use std::sync::Arc;

use futures::StreamExt as _;

use crate::{later, written};

/// Worlds at one time: they mostly wait.
const AT_ONCE: usize = 8;

/// What may be called otherwise, with the reason.
const UNREAD: &[(&str, &str, &str)] = &[
    ("check", "at", "it is written again before it is read"),
    ("mail", "ttl", "the table alone reads it"),
    ("p", "lv", "a plan whose lives are not known stays, and no life here is removed"),
    ("r c", "ttl", "the table alone reads it"),
    (
        "r h",
        "tv",
        "who reads none counts from 0, and so does the table; it tells apart who writes at one time",
    ),
    ("r u", "ds", "it bounds how many distinct results are kept, and no life here has more than one"),
    ("r u", "ev", "it is evidence for people, and no decision reads it"),
    ("r u", "ev.method", "as `ev`"),
    ("r u", "ev.status", "as `ev`"),
    ("r u", "ev.url", "as `ev`"),
    ("r u", "le", "it keeps two senders of one request apart, and the lives that go on have one sender each"),
    (
        "r u",
        "un",
        "a teardown waits for a request without an answer, and the lives that go on here do so after that time",
    ),
    ("t", "by", "who has written it reads it, when an answer was lost; the next write leaves another"),
    (
        "t",
        "pv",
        "it names the entries that the end of a life removes, and those of lives that are over hold nothing",
    ),
    ("t", "tell.reason", "it tells people why an outcome was not accepted, and no decision reads it"),
    ("t", "ttl", "the table alone reads it"),
    ("use", "cl", "it tells people the cluster of a holder, and no decision reads it"),
    ("x", "ttl", "the table alone reads it"),
];

/// All of it: attributes and fields of all kinds. The error has to be about an item that has the part; without another name
/// for anything there is none (`what_each_release_stored_goes_on`), nor with one more attribute in each item (`rollback`).
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_called_otherwise_is_noticed() {
    let stored = Arc::new(written());
    let looks = futures::stream::iter(stored.parts()).map(|(kind, name)| {
        let stored = stored.clone();
        tokio::spawn(async move {
            let (renamed, called) = stored.renamed(&kind, &name);
            assert!(!called.is_empty(), "no {kind} has {name}");
            let noticed = later::goes_on(&renamed).await.err().map(|error| format!("{error:#}"));
            let excepted = UNREAD.iter().any(|(of, unread, _)| *of == kind && *unread == name);
            let wrong = match &noticed {
                None => !excepted,
                Some(error) => excepted || !called.iter().any(|called| error.contains(called.as_str())),
            };
            (wrong, format!("{kind} {name}: {}", noticed.unwrap_or_else(|| "goes on".to_owned())))
        })
    });
    let looks: Vec<_> = looks.buffer_unordered(AT_ONCE).map(Result::unwrap).collect().await;
    for (_, look) in &looks {
        println!("{look}");
    }
    let wrong: Vec<_> = looks.iter().filter(|(wrong, _)| *wrong).map(|(_, look)| look).collect();
    assert!(wrong.is_empty(), "not noticed, noticed although it is excepted, or by another item: {wrong:#?}");
}
