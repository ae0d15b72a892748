//! Checks the layout of the repository: top level, dependencies of crates, names, banned words and links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use serde::Deserialize;

use crate::tree;

/// The lists of [`LISTS_FILE`]. The names in a text are separated by spaces.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LayoutLists {
    top_level: String,
    arrows: BTreeMap<String, String>,
    free: Vec<String>,
    pure: Vec<String>,
    impure: String,
    platform: String,
    vague: String,
    prescribed: String,
    frequent: String,
    banned: Vec<BannedWords>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BannedWords {
    endings: Vec<String>,
    words: String,
}

const LISTS_FILE: &str = "tests/tests/layout.yaml";

static LISTS: LazyLock<LayoutLists> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("layout.yaml")).expect("the lists are readable"));

/// Maximum lines of a program in `functions/lambda/src/bin`.
const LAMBDA_MAIN: usize = 60;

/// Maximum lines of Rust in all files. A change that adds more takes others out, or lowers this number by what it takes out.
const MAX_LINES: usize = 156_000;

/// Maximum Rust files with the same name. A file name in a message or an editor should identify the file.
const MAX_SAME_FILE_NAME: usize = 3;

/// Returns true if a name is in a list. An entry with `*` at its end is a prefix.
fn is_in(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == entry,
    })
}

#[track_caller]
pub(crate) fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names of the packages that the code of a package depends on.
fn dependencies(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development).map(|it| it.name.as_str())
}

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
    let files = tree::files().iter().map(|file| file.split('/').next().unwrap_or(file));
    let found: BTreeSet<&str> = files.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(found, LISTS.top_level.split_whitespace().collect());
}

#[test]
fn crates_have_only_allowed_dependencies() {
    let packages = packages();
    let by_name: BTreeMap<_, _> = packages.iter().map(|(folder, package)| (package.name.as_str(), folder)).collect();
    let folder = |name: &str| if name.contains('/') { name.to_owned() } else { format!("shared/{name}") };
    let arrows: BTreeMap<String, Vec<String>> =
        LISTS.arrows.iter().map(|(from, to)| (folder(from), to.split_whitespace().map(folder).collect())).collect();
    let mut wrong = Vec::new();
    for (directory, package) in packages.iter().filter(|(directory, _)| !LISTS.free.contains(directory)) {
        let Some(allowed) = arrows.get(directory) else {
            wrong.push(format!("{directory} is not in `arrows` of {LISTS_FILE}"));
            continue;
        };
        let internal = dependencies(package).filter_map(|name| by_name.get(name));
        wrong.extend(internal.filter(|to| !allowed.contains(to)).map(|to| format!("{directory} → {to}")));
    }
    assert_none(&wrong);
}

#[test]
fn crates_have_no_rejected_dependencies() {
    let packages = packages();
    let rejected = LISTS.pure.iter().map(|directory| (directory.as_str(), &LISTS.impure));
    let rejected = rejected.chain([("shared/flow", &LISTS.platform)]);
    let wrong = rejected.flat_map(|(directory, list)| {
        let names = dependencies(&packages[directory]).filter(move |name| is_in(list, name));
        names.map(move |name| format!("{directory} → {name}"))
    });
    assert_none(&wrong.collect::<Vec<_>>());
    let of_engine: Vec<&str> = dependencies(&packages["shared/engine"]).collect();
    assert_eq!(of_engine, ["schemars", "serde", "thiserror", "utoipa"]);
}

/// A tool can do what the token of its caller permits, because it only sends requests.
#[test]
fn tools_of_agents_use_no_other_part_of_the_api() {
    let sources: Vec<_> = tree::sources().filter(|file| file.starts_with("shared/api/src/mcp")).collect();
    assert!(sources.len() > 5, "{sources:?}");
    for file in sources {
        let text = tree::read(file);
        let paths = text.split("crate::").skip(1).chain(text.split("use ebb_").skip(1));
        let is_foreign = |path: &&str| !["mcp::", "documents::", "protocol::"].iter().any(|own| path.starts_with(own));
        let wrong: Vec<_> = paths.filter(is_foreign).filter_map(|path| path.lines().next()).collect();
        assert!(wrong.is_empty(), "{file} uses {wrong:?}");
    }
}

#[test]
fn pure_crates_extend_the_lints_of_the_workspace() {
    let workspace = tree::read(".clippy.toml");
    for directory in &LISTS.pure {
        let own = tree::read(&format!("{directory}/clippy.toml"));
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
    let sources: Vec<_> = tree::sources().filter(|file| file.starts_with("functions/lambda/src/bin/")).collect();
    assert!(!sources.is_empty());
    for file in sources {
        let lines = tree::read(file).lines().count();
        assert!(lines <= LAMBDA_MAIN, "{file} has {lines} lines: move code to the library or to shared/flow");
    }
}

#[test]
fn the_lines_of_rust_have_a_limit() {
    let lines: usize = tree::sources().map(|file| tree::read(file).lines().count()).sum();
    assert!(
        lines <= MAX_LINES,
        "{lines} lines of Rust, and at most {MAX_LINES} are allowed: take out what is done twice"
    );
    assert!(lines + 1_000 > MAX_LINES, "{lines} lines of Rust: lower MAX_LINES to them");
}

#[test]
fn modules_have_descriptive_names() {
    let vague =
        tree::sources().filter(|file| file.trim_end_matches(".rs").split('/').any(|part| is_in(&LISTS.vague, part)));
    assert_none(&vague.map(|file| format!("rename {file} after its content")).collect::<Vec<_>>());
}

#[test]
fn a_file_name_is_used_at_most_three_times() {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in tree::sources() {
        files.entry(file.trim_end_matches(".rs").rsplit('/').next().unwrap_or(file)).or_default().push(file);
    }
    let may_repeat = |name: &str| is_in(&LISTS.prescribed, name) || is_in(&LISTS.frequent, name);
    files.retain(|name, paths| paths.len() > MAX_SAME_FILE_NAME && !may_repeat(name));
    let wrong = files.values().map(|paths| format!("rename a module after its subject: {}", paths.join(", ")));
    assert_none(&wrong.collect::<Vec<_>>());
}

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
        .map(|(name, crates)| {
            let places = crates.values().cloned().collect::<Vec<_>>().join(", ");
            format!("two crates declare {name}: rename one after its subject: {places}")
        })
        .collect();
    assert_none(&wrong);
}

/// Returns true if a line in lower case has a word or text. A longer word that has the word in it is another word.
fn has_word(line: &str, word: &str) -> bool {
    let continues = |neighbour: Option<char>| neighbour.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c));
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let whole = word.chars().all(|c| c.is_alphanumeric() || c == '-');
        !whole || !(continues(before.chars().next_back()) || continues(after.chars().next()))
    })
}

#[test]
fn files_have_no_banned_words() {
    let mut wrong = Vec::new();
    for file in tree::files().iter().filter(|file| *file != LISTS_FILE) {
        let lists = LISTS.banned.iter().filter(|list| list.endings.iter().any(|ending| file.ends_with(ending)));
        let words: Vec<&str> = lists.flat_map(|list| list.words.split_whitespace()).collect();
        if words.is_empty() {
            continue;
        }
        for (number, line) in tree::read(file).lines().enumerate() {
            let line = line.to_lowercase();
            let found = words.iter().filter(|word| has_word(&line, word));
            wrong.extend(found.map(|word| format!("{file}:{}: {word}", number + 1)));
        }
    }
    assert_none(&wrong);
}

#[test]
fn links_between_documents_lead_to_files() {
    let mut wrong = Vec::new();
    for file in tree::files().iter().filter(|file| file.ends_with(".md")) {
        let folder = Path::new(file).parent().expect("a file is in a folder");
        for (number, line) in tree::read(file).lines().enumerate() {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            let pictures = ["src=\"", "srcset=\""].into_iter().flat_map(|name| line.split(name).skip(1));
            let pictures = pictures.filter_map(|rest| rest.split_once('"'));
            for link in links.chain(pictures).map(|(link, _)| link) {
                let path = link.split('#').next().unwrap_or_default();
                if !path.is_empty() && !path.contains(':') && !tree::root().join(folder).join(path).exists() {
                    wrong.push(format!("{file}:{}: {link}", number + 1));
                }
            }
        }
    }
    assert_none(&wrong);
}

/// A hand-written picture has a file for light pages and one for dark pages.
#[test]
fn the_pictures_of_the_flow_differ_only_in_their_colours() {
    let [light, dark] = ["light", "dark"].map(|scheme| tree::read(&format!("docs/src/pictures/flow-{scheme}.svg")));
    let differing: Vec<&str> =
        light.lines().zip(dark.lines()).filter(|(one, other)| one != other).map(|(one, _)| one).collect();
    assert_eq!(light.lines().count(), dark.lines().count());
    assert!(matches!(differing[..], [line] if line.starts_with(":root { --text: ")), "{differing:?}");
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
        let advice = "give it the features that `cargo test` has, in infra/workspace-hack/Cargo.toml";
        wrong.extend(other.difference(&all).map(|line| format!("{}: {line}: {advice}", package.name)));
    }
    assert_none(&wrong);
}
