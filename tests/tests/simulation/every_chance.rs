//! The examples and some small graphs, with every mishap at every chance: death before and after every write, read and
//! request, every message, callback and webhook lost, doubled and late.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_spec::load::{self, Document, Folder, Vars};
use ebb_tests::sim::crowd::{Design, Report, Trace, live};
use ebb_tests::sim::{Mishap, Mishaps};

/// What happens at every chance. What only makes a unit fail for good is left to the random worlds.
const KINDS: [Mishap; 24] = [
    Mishap::DeathBeforeWrite,
    Mishap::DeathAfterWrite,
    Mishap::DeathBeforeRead,
    Mishap::DeathBeforeCall,
    Mishap::DeathAfterCall,
    Mishap::WriteFails,
    Mishap::WriteAnswerLost,
    Mishap::WrittenTwice,
    Mishap::ReadFails,
    Mishap::MessageLost,
    Mishap::MessageDoubled,
    Mishap::MessageLate,
    Mishap::CallbackLost,
    Mishap::CallbackAnswerLost,
    Mishap::CallbackDoubled,
    Mishap::CallbackLate,
    Mishap::EventLost,
    Mishap::EventAnswerLost,
    Mishap::EventDoubled,
    Mishap::RelayAway,
    Mishap::RelayAnswerLost,
    Mishap::RelayRequestDoubled,
    Mishap::PlatformRefuses,
    Mishap::PlatformAnswerLost,
];
const ENDS: [&str; 2] = ["dev.ebb.target.gone.v1", "dev.ebb.target.ready.v1"];

fn is_good(report: &Report) -> bool {
    report.wrong.is_empty() && report.told.iter().map(String::as_str).eq(ENDS)
}

fn said(report: &Report) -> String {
    format!("{:?} {:?}\n{}", report.wrong, report.told, report.story.join("\n"))
}

/// A design lives as if nothing had happened, whatever happens once.
pub(crate) fn survives(name: &str, design: &Design, target: &str) {
    let calm = live(design, target, Mishaps::none(), Trace::Kept);
    assert!(is_good(&calm), "{name}: {}", said(&calm));
    let chances = |kind: Mishap| calm.chances[kind as usize];
    let cases: Vec<(Mishap, u64)> =
        KINDS.iter().flat_map(|&kind| (1..=chances(kind)).map(move |number| (kind, number))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&(kind, number)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = live(design, target, Mishaps::once(kind, number), Trace::Off);
                    let reached = report.reached[kind as usize] == 1;
                    if !reached || !is_good(&report) {
                        wrong.lock().unwrap().push((kind, number, reached));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let Some(&(kind, number, reached)) = wrong.first() else { return };
    let shown = live(design, target, Mishaps::once(kind, number), Trace::Kept);
    panic!(
        "{name}: {} of {} cases are wrong, {kind} at chance {number} (reached: {reached}) is: {}",
        wrong.len(),
        cases.len(),
        said(&shown)
    );
}

/// An example as it is published, and the name of its target.
fn example(name: &str, plugins: &[&str]) -> (Design, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let values = ["root=/r", "host=h", "port=5432", "user=u", "receiver=https://outside.test"];
    let read = |file: &str| {
        let vars = Vars::parse(values.map(str::to_owned)).unwrap();
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        load::documents(file, &text, &Folder::new(&folder), &vars).unwrap().documents.remove(0)
    };
    let published = plugins.iter().map(|file| match read(file) {
        Document::Plugin(plugin) => {
            let version = plugin.version.unwrap();
            (plugin.name.value, version.to_string(), plugin.expanded)
        }
        _ => panic!("{file} is no plugin"),
    });
    let plugins = published.collect();
    let Document::Sandbox(sandbox) = read("sandbox.yaml") else { panic!("sandbox.yaml is no sandbox") };
    (Design { plugins, document: sandbox.expanded }, sandbox.name.value)
}

#[test]
fn every_example_is_tried() {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap();
    // Objects need a cluster: the stories have those.
    let objects = |folder: &Path| {
        let plugin = std::fs::read_to_string(folder.join("plugin.yaml"));
        plugin.is_ok_and(|text| text.lines().any(|line| line.trim() == "object:"))
    };
    let tried = folders.map(|entry| entry.unwrap().path()).filter(|folder| !objects(folder));
    let names: BTreeSet<String> =
        tried.map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let tried = ["postgres", "s3", "webhooks", "wired"].map(str::to_owned);
    assert_eq!(names, tried.into(), "an example that no test below tries");
}

#[test]
fn s3() {
    let (design, target) = example("s3", &["plugin.yaml"]);
    survives("s3", &design, &target);
}

#[test]
fn postgres() {
    let (design, target) = example("postgres", &["plugin.yaml"]);
    survives("postgres", &design, &target);
}

#[test]
fn webhooks() {
    let (design, target) = example("webhooks", &["plugin.yaml"]);
    survives("webhooks", &design, &target);
}

#[test]
fn wired() {
    let (design, target) = example("wired", &["store.yaml", "tenant.yaml"]);
    survives("wired", &design, &target);
}
