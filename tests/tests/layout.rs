//! Checks the layout of the repository: top level, dependencies of crates, names, banned texts and links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::tree;

/// Files and folders at the top level. Dot files are not checked.
const TOP_LEVEL: [&str; 13] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "docs",
    "functions",
    "infra",
    "shared",
    "template.yaml",
    "tests",
];

/// Allowed dependencies between crates. Tests and chores ([`FREE`]) may depend on every crate.
const ARROWS: &[(&str, &[&str])] = &[
    ("shared/engine", &[]),
    ("shared/cel", &[]),
    ("shared/documents", &["shared/engine", "shared/cel"]),
    ("shared/readiness", &[]),
    // The control plane merges pod templates. The relay checks the result.
    ("shared/podspec", &[]),
    ("shared/protocol", &["shared/engine"]),
    ("shared/store", &["shared/protocol"]),
    ("shared/egress", &["shared/protocol"]),
    ("shared/script", &["shared/protocol"]),
    ("shared/flow", &["shared/engine", "shared/documents", "shared/protocol", "shared/store", "shared/egress"]),
    // It builds the Job of a script with the author's pod template. The relay applies objects only.
    (
        "shared/relay_client",
        &["shared/engine", "shared/podspec", "shared/protocol", "shared/store", "shared/egress", "shared/flow"],
    ),
    (
        "shared/api",
        &["shared/engine", "shared/documents", "shared/protocol", "shared/store", "shared/flow", "shared/relay_client"],
    ),
    ("shared/otlp", &["shared/flow"]),
    // It constructs the adapters of the functions on AWS.
    (
        "shared/lambda",
        &[
            "shared/engine",
            "shared/protocol",
            "shared/store",
            "shared/egress",
            "shared/flow",
            "shared/relay_client",
            "shared/api",
            "shared/otlp",
        ],
    ),
    // It constructs the adapters of the functions on one machine.
    (
        "shared/local",
        &[
            "infra/workspace-hack",
            "shared/engine",
            "shared/protocol",
            "shared/store",
            "shared/egress",
            "shared/flow",
            "shared/relay_client",
            "shared/api",
            "shared/script",
        ],
    ),
    ("shared/relay", &["shared/protocol", "shared/readiness", "shared/podspec", "shared/cel"]),
    ("functions/lambda", &["shared/api", "shared/lambda"]),
    ("functions/relay", &["shared/protocol", "shared/relay"]),
    ("functions/entrypoint", &["shared/script", "shared/protocol"]),
    // The command line compiles documents without a server, and starts `ebb dev`.
    (
        "functions/cli",
        &[
            "shared/documents",
            "shared/protocol",
            "shared/flow",
            "shared/relay_client",
            "shared/api",
            "shared/local",
            "shared/otlp",
        ],
    ),
];
const FREE: [&str; 4] = ["tests", "tests/fuzz", "infra/workspace-hack", "infra/xtask"];

/// Crates without input and output.
const PURE: [&str; 5] = ["shared/engine", "shared/cel", "shared/documents", "shared/readiness", "shared/podspec"];
const IMPURE: [&str; 14] = [
    "async-std",
    "axum",
    "fastrand",
    "getrandom",
    "hyper",
    "kube",
    "mio",
    "rand",
    "reqwest",
    "smol",
    "socket2",
    "tokio",
    "ureq",
    "uuid",
];
/// The dependencies of `shared/engine`.
const ENGINE_DEPENDENCIES: [&str; 1] = ["thiserror"];

/// Maximum lines of a program in `functions/lambda`.
const LAMBDA_MAIN: usize = 60;

/// Prefixes of crates that `shared/flow` may use through ports only.
const PLATFORM: [&str; 8] = ["aws", "axum", "hyper", "kube", "lambda", "opentelemetry", "tower", "utoipa"];

/// Names that do not describe the content of a module.
const VAGUE: [&str; 12] = [
    "common", "handler", "handlers", "helper", "helpers", "info", "manager", "misc", "process", "util", "utils",
    "managers",
];

/// Maximum Rust files with the same name. A file name in a message or an editor should identify the file.
const MAX_SAME_FILE_NAME: usize = 3;
/// File names that Cargo or `rustc` prescribe, and `tests.rs` beside the module that it tests.
const PRESCRIBED_FILE_NAMES: [&str; 4] = ["lib.rs", "main.rs", "mod.rs", "tests.rs"];
/// More frequent file names, with their numbers. Add one only if it is the precise term of the subject.
const FREQUENT_FILE_NAMES: &[(&str, usize)] = &[
    // One concept in each layer that has it: document, store, protocol, engine, relay, API, CLI and tests.
    ("clusters.rs", 5),
    ("lifecycle.rs", 4),
    ("logs.rs", 5),
    ("orphans.rs", 4),
    ("outputs.rs", 4),
    ("record.rs", 5),
    ("relay.rs", 6),
    ("run.rs", 8),
    ("target.rs", 4),
    ("unit.rs", 5),
    // The role of a module in its crate or test program.
    ("api.rs", 4),
    ("checks.rs", 6),
    ("client.rs", 4),
    ("fixture.rs", 4),
    ("functions.rs", 4),
    ("list.rs", 5),
    ("names.rs", 4),
    ("platform.rs", 4),
    ("server.rs", 5),
    ("table.rs", 4),
    // Build scripts, and the chores that build.
    ("build.rs", 5),
];

/// Words that hide the subject of a sentence, in halves, with the number of their uses in Rust and Markdown files. The
/// numbers may only decrease.
const BANNED_WORDS: [([&str; 2], usize); 4] =
    [(["no", "body"], 52), (["some", "body"], 29), (["who", "ever"], 14), (["a", "new"], 1)];

/// Words of praise that cannot be measured.
const PRAISE: [&str; 20] = [
    "amazing",
    "awesome",
    "beautiful",
    "blazing",
    "blazingly",
    "cutting-edge",
    "effortless",
    "effortlessly",
    "elegant",
    "enterprise-grade",
    "lightning-fast",
    "modern",
    "next-generation",
    "powerful",
    "revolutionary",
    "robust",
    "seamless",
    "seamlessly",
    "simply",
    "world-class",
];

/// Returns the packages of the workspace by directory.
fn packages() -> BTreeMap<String, Package> {
    let root = tree::root();
    let metadata =
        MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec().expect("cargo metadata");
    let directory = |package: &Package| {
        let directory = package.manifest_path.parent().expect("a manifest is in a directory").as_std_path();
        let below = directory.strip_prefix(&root).expect("members are below the root");
        below.to_str().expect("paths are UTF-8").to_owned()
    };
    metadata.packages.into_iter().map(|package| (directory(&package), package)).collect()
}

#[test]
fn the_top_level_has_the_listed_files() {
    let found: BTreeSet<String> = tree::files()
        .iter()
        .map(|file| file.split('/').next().unwrap_or(file).to_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    let unlisted: Vec<_> = found.iter().filter(|name| !TOP_LEVEL.contains(&name.as_str())).collect();
    assert!(unlisted.is_empty(), "not in TOP_LEVEL: {unlisted:?}");
    let missing: Vec<_> = TOP_LEVEL.iter().filter(|name| !found.contains(**name)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
}

#[test]
fn crates_have_only_allowed_dependencies() {
    let packages = packages();
    let by_name: BTreeMap<_, _> =
        packages.iter().map(|(directory, package)| (package.name.as_str(), directory.as_str())).collect();
    let mut wrong = Vec::new();
    for (directory, package) in &packages {
        if FREE.contains(&directory.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| from == directory) else {
            wrong.push(format!("{directory} is not in ARROWS"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development) {
            if let Some(to) = by_name.get(dependency.name.as_str())
                && !allowed.contains(to)
            {
                wrong.push(format!("{directory} → {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "dependencies that ARROWS does not allow:\n{}", wrong.join("\n"));
}

#[test]
fn pure_crates_depend_on_nothing_impure() {
    let packages = packages();
    let mut wrong = Vec::new();
    for directory in PURE {
        let Some(package) = packages.get(directory) else { continue };
        for dependency in package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development) {
            let name = dependency.name.as_str();
            let impure = IMPURE.contains(&name) || name.starts_with("aws-") || name.starts_with("tokio-");
            if impure || (directory == "shared/engine" && !ENGINE_DEPENDENCIES.contains(&name)) {
                wrong.push(format!("{directory} → {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "impure dependencies of pure crates:\n{}", wrong.join("\n"));
}

#[test]
fn pure_crates_extend_the_lints_of_the_workspace() {
    let workspace = tree::read(".clippy.toml");
    for directory in PURE {
        let Some(own) = tree::find(&format!("{directory}/clippy.toml")) else {
            assert!(tree::find(&format!("{directory}/Cargo.toml")).is_none(), "{directory} has no clippy.toml");
            continue;
        };
        for setting in workspace.lines().filter(|line| !line.starts_with('#')) {
            // Clippy reads the nearest file only.
            assert!(own.contains(setting), "{directory}/clippy.toml lacks `{setting}` of .clippy.toml");
        }
        for call in ["SystemTime::now", "Instant::now", "std::env::var", "std::thread::spawn", "Command::new"] {
            assert!(own.contains(call), "{directory}/clippy.toml does not disallow `{call}`");
        }
    }
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    for directory in packages().keys() {
        let manifest = tree::read(&format!("{directory}/Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{directory}/Cargo.toml has lints of its own");
    }
}

#[test]
fn programs_on_lambda_are_thin() {
    let sources: Vec<_> = tree::sources().filter(|file| file.starts_with("functions/lambda/src/")).collect();
    assert!(!sources.is_empty());
    for file in sources {
        assert!(file.starts_with("functions/lambda/src/bin/"), "{file} is not a program: move it to shared/lambda");
        let lines = tree::read(file).lines().count();
        assert!(lines <= LAMBDA_MAIN, "{file} has {lines} lines: move code to shared/lambda or shared/flow");
    }
}

#[test]
fn orchestration_is_independent_of_platforms() {
    let package = &packages()["shared/flow"];
    let found: Vec<_> = package.dependencies.iter().map(|it| it.name.as_str()).collect();
    let wrong: Vec<_> = found.iter().filter(|name| PLATFORM.iter().any(|prefix| name.starts_with(prefix))).collect();
    assert!(wrong.is_empty(), "shared/flow depends on {wrong:?}: use a port of shared/flow/src/ports.rs");
}

#[test]
fn modules_have_descriptive_names() {
    let vague: Vec<_> = tree::sources()
        .filter(|file| file.trim_end_matches(".rs").split('/').any(|part| VAGUE.contains(&part)))
        .collect();
    assert!(vague.is_empty(), "rename after the content: {vague:?}");
}

#[test]
fn a_file_name_is_used_at_most_three_times() {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in tree::sources() {
        files.entry(file.rsplit('/').next().unwrap_or(file)).or_default().push(file);
    }
    let mut wrong = Vec::new();
    for (name, paths) in &files {
        let listed = FREQUENT_FILE_NAMES.iter().find(|(listed, _)| listed == name).map(|(_, number)| *number);
        let limit = listed.unwrap_or(MAX_SAME_FILE_NAME);
        if paths.len() > limit && !PRESCRIBED_FILE_NAMES.contains(name) {
            wrong.push(format!("{} files are called {name}, at most {limit} may: {}", paths.len(), paths.join(", ")));
        }
    }
    for (name, number) in FREQUENT_FILE_NAMES {
        let found = files.get(name).map_or(0, Vec::len);
        if found < *number {
            wrong.push(format!("{found} files are called {name}, FREQUENT_FILE_NAMES has {number}: lower it"));
        }
        if *number <= MAX_SAME_FILE_NAME {
            wrong.push(format!("{name} needs no entry in FREQUENT_FILE_NAMES: remove it"));
        }
    }
    assert!(
        wrong.is_empty(),
        "rename a module after its subject, or edit FREQUENT_FILE_NAMES in tests/tests/layout.rs:\n{}",
        wrong.join("\n")
    );
}

/// Returns the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let name = ["struct ", "enum ", "trait "].iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end]).filter(|name| !name.is_empty())
}

#[test]
fn public_types_have_unique_names() {
    let packages = packages();
    // The longest directory wins, because `tests/fuzz` is below `tests`.
    let crate_of = |file: &str| {
        let above = packages.keys().filter(|directory| file.starts_with(&format!("{directory}/")));
        above.max_by_key(|directory| directory.len()).cloned().unwrap_or_default()
    };
    let mut types: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in tree::sources() {
        for (number, line) in tree::read(file).lines().enumerate() {
            if let Some(name) = public_type(line) {
                let place = format!("{file}:{}", number + 1);
                types.entry(name.to_owned()).or_default().entry(crate_of(file)).or_insert(place);
            }
        }
    }
    assert!(types.len() > 200, "only {} public types were found", types.len());
    let shared = types.iter().filter(|(_, crates)| crates.len() > 1);
    let wrong: Vec<String> = shared
        .map(|(name, crates)| format!("{name}: {}", crates.values().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert!(
        wrong.is_empty(),
        "two crates declare a public type of the same name: rename one after its subject:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn banned_words_do_not_increase() {
    let texts = tree::files().iter().filter(|file| file.ends_with(".rs") || file.ends_with(".md"));
    let texts: Vec<(&String, String)> = texts.map(|file| (file, tree::read(file))).collect();
    let mut wrong = Vec::new();
    for (halves, limit) in BANNED_WORDS {
        let word = halves.concat();
        let mut places = Vec::new();
        for (file, text) in &texts {
            for (number, line) in text.lines().enumerate() {
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                let uses = words.filter(|it| it.eq_ignore_ascii_case(&word)).count();
                places.extend(std::iter::repeat_n(format!("{file}:{}", number + 1), uses));
            }
        }
        match places.len() {
            found if found > limit => wrong.push(format!(
                "`{word}` is used {found} times, {limit} times at most: name the subject instead in\n  {}",
                places.join("\n  ")
            )),
            found if found < limit => {
                wrong.push(format!("`{word}` is used {found} times: lower its number in BANNED_WORDS to {found}"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "BANNED_WORDS of tests/tests/layout.rs:\n{}", wrong.join("\n"));
}

#[test]
fn no_test_is_ignored_and_no_code_unfinished() {
    // In pieces, so that this file passes.
    let banned = [["#[ign", "ore"], ["to", "do!("], ["unimpl", "emented!("]].map(|parts| parts.concat());
    let mut wrong = Vec::new();
    for file in tree::sources() {
        for (number, line) in tree::read(file).lines().enumerate() {
            for text in banned.iter().filter(|text| line.contains(text.as_str())) {
                wrong.push(format!("{file}:{}: {text}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn documents() -> impl Iterator<Item = &'static String> {
    tree::files().iter().filter(|file| file.ends_with(".md"))
}

#[test]
fn links_between_documents_lead_to_files() {
    let mut wrong = Vec::new();
    for file in documents() {
        let folder = Path::new(file).parent().expect("a file is in a folder");
        for (number, line) in tree::read(file).lines().enumerate() {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
                let path = link.split('#').next().unwrap_or_default();
                if !path.is_empty() && !path.contains(':') && !tree::root().join(folder).join(path).exists() {
                    wrong.push(format!("{file}:{}: {link}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_contain_no_praise() {
    let mut wrong = Vec::new();
    for file in documents() {
        for (number, line) in tree::read(file).lines().enumerate() {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '-').map(str::to_lowercase);
            let praise = words.filter(|word| PRAISE.contains(&word.as_str()));
            wrong.extend(praise.map(|word| format!("{file}:{}: {word}", number + 1)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn example_scripts_name_their_interpreter() {
    for script in tree::files().iter().filter(|file| file.starts_with("tests/examples/") && file.ends_with(".sh")) {
        assert!(tree::read(script).starts_with("#!/bin/sh\n"), "{script} must begin with #!/bin/sh");
    }
}

/// Returns the external packages that a selection of the workspace builds, each with its features.
fn features(selection: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "--prefix", "none", "--format", "{p}|{f}"];
    let edges = ["--edges", "normal,build,dev"];
    let tree = Command::new(env!("CARGO")).current_dir(tree::root()).args(tree).args(edges).args(selection).output();
    let tree = tree.expect("cargo tree");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).expect("names are UTF-8");
    let lines = lines.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| !line.contains("(/")).map(str::to_owned).collect()
}

/// Cargo builds a dependency once per set of features, which can take minutes.
#[test]
fn a_dependency_has_one_set_of_features() {
    let all = features(&[]);
    let mut wrong = Vec::new();
    let metadata = MetadataCommand::new().manifest_path(tree::root().join("Cargo.toml")).no_deps().exec();
    for package in metadata.expect("cargo metadata").workspace_default_packages() {
        let other = features(&["--package", package.name.as_str()]);
        wrong.extend(other.difference(&all).map(|line| format!("{}: {line}", package.name)));
    }
    assert!(
        wrong.is_empty(),
        "give these the features that `cargo test` has, in infra/workspace-hack/Cargo.toml:\n{}",
        wrong.join("\n")
    );
}
