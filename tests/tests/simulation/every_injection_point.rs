//! Examples and small graphs with each fault at each injection point: crashes before and after every write, read and request,
//! and every message, callback and webhook lost, duplicated or late.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_documents::load::{self, Document, DocumentVars, FolderFiles};
use ebb_tests::simulation::{
    FaultAttribute, FaultInjector, FaultKind, SimReport, TargetScenario, TraceMode, UnitBehavior, simulate_target,
};

const ENDS: [&str; 2] = ["dev.ebb.target.gone.v1", "dev.ebb.target.ready.v1"];

/// Returns true if a simulation has no violation and the notifications of another one.
fn is_good(report: &SimReport, expected: &SimReport) -> bool {
    report.violations.is_empty() && report.notifications == expected.notifications
}

fn description(report: &SimReport) -> String {
    format!("{:?} {:?}\n{}", report.violations, report.notifications, report.trace)
}

/// Checks that a target ends as without faults, with each fault once at each injection point.
pub(crate) fn check_every_fault(name: &str, scenario: &TargetScenario, target: &str) {
    check_faults(name, scenario, target, &FaultKind::that_are(FaultAttribute::Harmless));
}

/// Does the same with these faults.
pub(crate) fn check_faults(name: &str, scenario: &TargetScenario, target: &str, kinds: &[FaultKind]) {
    let without_fault = simulate_target(scenario, target, FaultInjector::none(), TraceMode::Kept);
    let ends = ENDS.iter().all(|end| without_fault.notifications.contains(*end));
    assert!(ends && is_good(&without_fault, &without_fault), "{name}: {}", description(&without_fault));
    let points = |kind: FaultKind| without_fault.injection_points[kind as usize];
    let cases: Vec<(FaultKind, u64)> =
        kinds.iter().flat_map(|&kind| (1..=points(kind)).map(move |number| (kind, number))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&(kind, number)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report =
                        simulate_target(scenario, target, FaultInjector::none().and_at(kind, [number]), TraceMode::Off);
                    let reached = report.injected[kind as usize] == 1;
                    if !reached || !is_good(&report, &without_fault) {
                        wrong.lock().unwrap().push((kind, number, reached));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let Some(&(kind, number, reached)) = wrong.first() else { return };
    let traced = simulate_target(scenario, target, FaultInjector::none().and_at(kind, [number]), TraceMode::Kept);
    let (found, all, what) = (wrong.len(), cases.len(), description(&traced));
    let first = format!("{kind} at injection point {number} (reached: {reached})");
    panic!("{name}: {found} of {all} cases are wrong, {first} is: {what}");
}

fn example(name: &str, plugins: &[&str]) -> (TargetScenario, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let values = ["root=/r", "host=h", "port=5432", "user=u", "receiver=https://outside.test", "bucket=states"];
    let read = |file: &str| {
        let vars = DocumentVars::parse(values.map(str::to_owned)).unwrap();
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        load::documents(file, &text, &FolderFiles::new(&folder), &vars).unwrap().0.remove(0)
    };
    let published = plugins.iter().map(|file| {
        let Document::Plugin(plugin) = read(file) else { panic!("{file} is not a plugin") };
        (plugin.name.value, plugin.version.unwrap().to_string(), plugin.expanded)
    });
    let plugins = published.collect();
    let Document::Sandbox(sandbox) = read("sandbox.yaml") else { panic!("sandbox.yaml is not a sandbox") };
    (TargetScenario::new(plugins, sandbox.expanded, UnitBehavior::Steady), sandbox.name.value)
}

/// Tests each example with the files of its plugins.
macro_rules! examples {
    ($($test:ident: $plugins:expr;)+) => {
        const TESTED: &[&str] = &[$(stringify!($test)),+];
        $(
            #[test]
            fn $test() {
                let (scenario, target) = example(stringify!($test), &$plugins);
                check_every_fault(stringify!($test), &scenario, &target);
            }
        )+
    };
}

examples! {
    infrakit: [];
    opentofu: ["plugin.yaml"];
    postgres: ["plugin.yaml"];
    s3: ["plugin.yaml"];
    webhooks: ["plugin.yaml"];
    wired: ["store.yaml", "tenant.yaml"];
}

#[test]
fn every_example_has_a_test() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Other files are those of a reader.
    let listed = Command::new("git").args(["ls-files", "examples"]).current_dir(here).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    // The end-to-end tests have the examples with objects, which need a cluster.
    let has_objects = |folder: &str| {
        let plugin = std::fs::read_to_string(here.join("examples").join(folder).join("plugin.yaml"));
        plugin.is_ok_and(|text| text.lines().any(|line| line.trim() == "object:"))
    };
    let folders = listed.lines().filter_map(|file| file.split('/').nth(1));
    let names: BTreeSet<String> = folders.filter(|folder| !has_objects(folder)).map(str::to_owned).collect();
    // `lifecycle::providers` has the examples of providers, with a stand-in for their APIs.
    let of_providers =
        ["atlas", "bucket", "neon", "own-service", "planetscale", "railway", "rds", "stripe", "supabase"];
    let tested = TESTED.iter().chain(&of_providers).map(|name| (*name).to_owned());
    assert_eq!(names, tested.collect::<BTreeSet<_>>(), "an example has no test");
}
