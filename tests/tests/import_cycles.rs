//! Checks that the files and the folders of a crate import each other in one direction.
//!
//! A file may import its parent and its children, because they form one module. Test modules are not checked.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree;

/// Returns the module path of a file in `src`. The root of a crate has an empty path.
fn module(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    parts
}

/// Returns the paths in the crate that a file uses, as segments. `own` is the module path of the file.
fn imports(text: &str, own: &[&str]) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::").chain(text.match_indices("super::")) {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let end =
            text[at..].find(|c: char| !(c.is_alphanumeric() || "_:{".contains(c))).map_or(text.len(), |end| at + end);
        let mut path = text[at..end].split("::").peekable();
        let mut base: Vec<String> = match path.next() {
            Some("crate") => Vec::new(),
            _ => own.iter().rev().skip(1).rev().map(|part| (*part).to_owned()).collect(),
        };
        while path.next_if_eq(&"super").is_some() {
            base.pop();
        }
        let group = text[at..end].contains('{').then(|| text[at..].split(['{', '}']).nth(1)).flatten();
        let fixed = path.filter(|part| !part.contains('{') && !part.is_empty()).map(str::to_owned);
        base.extend(fixed);
        match group {
            None => found.push(base),
            Some(group) => found.extend(group.split(',').map(|leaf| {
                let leaf = leaf.trim().split("::").filter(|part| *part != "self").map(str::to_owned);
                base.iter().cloned().chain(leaf).collect()
            })),
        }
    }
    found
}

/// Returns each source file with the files of its crate that it imports.
fn graph() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let files: Vec<&str> =
        tree::sources().filter(|file| file.contains("/src/") && !file.starts_with("tests/")).collect();
    let split = |file: &'static str| file.split_once("/src/").expect("filtered by it");
    let by_module: BTreeMap<(&str, Vec<&str>), &str> =
        files.iter().map(|file| ((split(file).0, module(split(file).1)), *file)).collect();
    let mut graph = BTreeMap::new();
    for &file in &files {
        let (package, path) = split(file);
        let own = module(path);
        let mut to = BTreeSet::new();
        for import in imports(&tree::read(file), &own) {
            let import: Vec<&str> = import.iter().map(String::as_str).collect();
            // The longest prefix that is a file: the rest of the path names items in it.
            let target =
                (1..=import.len()).rev().find_map(|n| by_module.get_key_value(&(package, import[..n].to_vec())));
            if let Some(((_, target), other)) = target
                && !own.starts_with(target)
                && !target.starts_with(&own)
            {
                to.insert(*other);
            }
        }
        graph.insert(file, to);
    }
    graph
}

/// Returns all files that a file imports, directly or indirectly.
fn reach<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut open: Vec<&str> = graph[from].iter().copied().collect();
    let mut found = BTreeSet::new();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(&graph[file]);
        }
    }
    found
}

/// Returns each folder in the `src` of a crate with the other ones that its files import.
fn folders<'a>(files: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    // The files of a folder are in it or have its name.
    let folder = |file: &'a str| {
        let (package, path) = file.split_once("/src/")?;
        let name = path.split('/').next()?.trim_end_matches(".rs");
        let folder = &file[..package.len() + "/src/".len() + name.len()];
        files.keys().any(|other| other.starts_with(folder) && other[folder.len()..].starts_with('/')).then_some(folder)
    };
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (&file, imported) in files.iter().filter(|(file, _)| !file.ends_with("tests.rs")) {
        let Some(own) = folder(file) else { continue };
        let others = imported.iter().filter_map(|&other| folder(other)).filter(|other| *other != own);
        graph.entry(own).or_default().extend(others);
    }
    graph
}

#[test]
fn folders_import_each_other_in_one_direction() {
    let graph = folders(&graph());
    assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 20, "imports were not found");
    let wrong: Vec<String> = graph
        .keys()
        .filter(|folder| reach(&graph, folder).contains(*folder))
        .map(|folder| format!("{folder} imports {:?}, and one of them imports it", graph[folder]))
        .collect();
    assert!(wrong.is_empty(), "move what both need to a folder below, or to a file beside them:\n{}", wrong.join("\n"));
}

#[test]
fn files_import_each_other_in_one_direction() {
    let graph = graph();
    assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 500, "imports were not found");
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|&file| (file, reach(&graph, file))).collect();
    let mut cycles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (file, all) in reached.iter().filter(|(file, all)| all.contains(*file)) {
        cycles.insert(all.iter().copied().filter(|other| reached[other].contains(file)).collect());
    }
    let wrong: Vec<String> = cycles
        .iter()
        .map(|cycle| format!("import cycle; move the shared items to a file of their own: {}", cycle.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
