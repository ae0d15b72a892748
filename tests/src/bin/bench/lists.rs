//! Counts the requests and units of an observation of what exists at the sender of a source, and of a removal that follows.

use ebb_tests::listed_source::{ListedSource, PAGE};

/// Maximum write units of an observation of at most 10,000 things, and of each removal in it.
const MAX_WRITE_UNITS: f64 = 60.0;
const MAX_REMOVAL: f64 = 30.0;

/// Prints a row for each observation, and returns the limits that do not hold.
pub(crate) async fn measured() -> Vec<String> {
    let mut broken = Vec::new();
    println!("| things | requests to the sender | read units | write units | requests to the bucket |");
    println!("|---|---|---|---|---|");
    for things in [100, 10_000] {
        let source = ListedSource::new(things).await;
        source.observe().await;
        for (removals, what) in [(0, "all open"), (0, "one missing"), (1, "one removed")] {
            let (requests, usage) = source.observe().await;
            let objects: u64 = usage.objects.values().sum();
            let (reads, writes) = (usage.read_units, usage.write_units + usage.refused_write_units as f64);
            println!("| {things}, {what} | {requests} | {reads:.1} | {writes:.1} | {objects} |");
            let most = things.div_ceil(PAGE) as u64 + removals;
            if requests > most || writes > MAX_WRITE_UNITS + MAX_REMOVAL * removals as f64 {
                broken.push(format!("{things} things, {what}: {requests} requests, {writes:.1} write units"));
            }
            source.sender().open.remove("n-00000");
        }
    }
    broken
}
