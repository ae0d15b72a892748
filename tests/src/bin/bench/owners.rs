//! Measures lists and commands on several sandboxes of several owners, on one `ebb dev`. A command is the program `ebb`
//! with its start.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ebb_protocol::api::CreatedToken;
use ebb_tests::workdir::Workdir;
use futures::StreamExt as _;

use crate::peers::unit_receiver::UnitReceiver;

/// The longest time of a command that does not wait for units.
const LIMIT: Duration = Duration::from_secs(1);
/// Commands that create sandboxes at the same time.
const CREATIONS: usize = 4;
/// The label of all sandboxes.
const LABEL: &str = "bench=owners";

#[derive(clap::Args)]
pub(crate) struct OwnersArgs {
    /// Number of owners
    #[arg(long, default_value_t = 12)]
    owners: usize,
    /// Sandboxes of each owner
    #[arg(long, default_value_t = 25)]
    each: usize,
    /// Duration of an undo in milliseconds. A response to a deletion waits for up to 500 of them
    #[arg(long, default_value_t = 0)]
    undo_ms: u64,
}

/// Measures the commands of each owner, then those of an operator on all sandboxes. Returns the limits that do not hold.
pub(crate) async fn measured(&OwnersArgs { owners, each, undo_ms }: &OwnersArgs) -> anyhow::Result<Vec<String>> {
    ensure!(owners > 0 && each > 0, "--owners and --each are at least 1");
    let (receiver, operator) = (UnitReceiver::start().await?, Workdir::new());
    let dev = operator.dev().await;
    operator.apply("plugin", &plugin(&receiver.done_url(0), &receiver.done_url(undo_ms))).await;
    let mut places = Vec::new();
    for owner in 0..owners {
        let scopes = ["--scope", "read:own", "--scope", "targets:write:own", "-o", "json"];
        let name = format!("owner-{owner}");
        let created = operator.ebb(&[&["token", "create", &name][..], &scopes].concat()).await;
        let CreatedToken { token, .. } = created.done().json();
        places.push(Workdir::new().with_env(&[("EBB_URL", dev.url.clone().into()), ("EBB_TOKEN", token.into())]));
    }
    println!("{:>9} {:>10} {:>8} {:>8}", "command", "sandboxes", "median", "most");
    let mut broken = Vec::new();
    for (callers, count) in [(places.iter().collect::<Vec<_>>(), each), (vec![&operator], owners * each)] {
        create(&places, each).await;
        // All of them fail.
        operator.ebb(&["wait", "--label", LABEL]).await;
        broken.extend(series(&callers, count).await?);
        operator.ebb(&["wait", "--label", LABEL, "--for", "gone"]).await.done();
    }
    dev.stop().await;
    Ok(broken)
}

/// Creates the sandboxes of all owners.
async fn create(places: &[Workdir], each: usize) {
    let all = places.iter().enumerate().flat_map(|(owner, place)| (0..each).map(move |number| (owner, place, number)));
    let rest = "labels: {bench: owners}\nresources: {r: {plugin: held@1.0.0}}\n";
    let created = futures::stream::iter(all).for_each_concurrent(CREATIONS, |(owner, place, number)| async move {
        place.create(&format!("s-{owner}-{number}"), rest).await;
    });
    created.await;
}

/// Runs each command for each caller, who may change `count` sandboxes, and prints its times.
async fn series(callers: &[&Workdir], count: usize) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for (name, command, last) in [
        ("list", &["get", "sandboxes", "--phase", "failed", "--label", LABEL, "-o", "json"][..], None),
        ("retry", &["retry", "--phase", "failed", "--label", LABEL, "--yes"][..], Some("are retried")),
        ("delete", &["delete", "sandbox", "--label", LABEL, "--yes", "--wait=false"][..], Some("are being deleted")),
    ] {
        let mut times = Vec::new();
        for caller in callers {
            let begun = Instant::now();
            let result = caller.ebb(command).await.done();
            times.push(begun.elapsed());
            let is_complete = match last {
                Some(last) => result.stderr.ends_with(&format!("{count} of {count} targets {last}\n")),
                None => result.json::<Vec<serde_json::Value>>().len() == count,
            };
            ensure!(is_complete, "`{name}` of {count} sandboxes has printed {result:#?}");
        }
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{name:>9} {count:>10} {:>6} ms {:>5} ms", median.as_millis(), most.as_millis());
        if most > LIMIT {
            broken.push(format!("`{name}` of {count} sandboxes takes {} ms; the limit is 1 s", most.as_millis()));
        }
    }
    Ok(broken)
}

/// Returns a plugin whose setup fails after its first unit, so that a retry and an undo have something to do.
fn plugin(url: &str, undo_url: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: held@1.0.0\npreStart:\n  make: {{webhook: {{url: \"{url}\"}}}}\n  \
         check: {{after: make, retry: {{attempts: 1}}, webhook: {{url: \"{url}/missing\"}}}}\npostStop:\n  \
         drop: {{undoes: make, webhook: {{url: \"{undo_url}\"}}}}\n"
    )
}
