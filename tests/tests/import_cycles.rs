//! Checks that the modules of a crate import each other in one direction, at each level of its tree: the files and the
//! folders at the top, and those in each folder.
//!
//! A file that uses its child may not have items that the child uses. Test modules are not checked.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::assert_none;
use crate::tree;

/// Returns the crate of a source file and its path in the crate. A folder in `src/bin` is a crate of its own.
fn split_source(file: &str) -> (&str, &str) {
    let (package, path) = file.split_once("/src/").expect("it is a source file");
    match path.strip_prefix("bin/").and_then(|program| program.split_once('/')) {
        Some((_, path)) => (&file[..file.len() - path.len() - 1], path),
        None => (package, path),
    }
}

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
    let text = text.split("mod tests {").next().unwrap_or_default();
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

/// Returns the paths of the items that modules re-export, by their crate and the path of the re-export.
fn reexports(files: &[&'static str]) -> BTreeMap<(&'static str, Vec<String>), Vec<String>> {
    let mut found = BTreeMap::new();
    for &file in files {
        let (package, path) = split_source(file);
        let own: Vec<String> = module(path).into_iter().map(str::to_owned).collect();
        let text = tree::read(file);
        let exports = text.lines().filter_map(|line| {
            let line = line.strip_prefix("pub use ").or_else(|| line.strip_prefix("pub(crate) use "))?;
            line.strip_suffix(';')
        });
        for line in exports {
            let Some((child, names)) = line.trim_start_matches("self::").rsplit_once("::") else { continue };
            let child: Vec<String> = own.iter().cloned().chain(child.split("::").map(str::to_owned)).collect();
            for name in names.trim_matches(['{', '}']).split(", ") {
                found.insert((package, [own.as_slice(), &[name.to_owned()]].concat()), child.clone());
            }
        }
    }
    found
}

fn source_files() -> Vec<&'static str> {
    let is_checked = |file: &&str| file.contains("/src/") && !file.starts_with("tests/") && !file.contains("/tests/");
    tree::sources().filter(is_checked).collect()
}

/// Returns each source file with the files of its crate that it imports.
fn graph() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let files = source_files();
    let by_module: BTreeMap<(&str, Vec<&str>), &str> =
        files.iter().map(|file| ((split_source(file).0, module(split_source(file).1)), *file)).collect();
    let reexports = reexports(&files);
    let mut graph = BTreeMap::new();
    for &file in &files {
        let (package, path) = split_source(file);
        let own = module(path);
        let mut to = BTreeSet::new();
        for import in imports(&tree::read(file), &own) {
            let import = (package, import);
            let import: Vec<&str> = reexports.get(&import).unwrap_or(&import.1).iter().map(String::as_str).collect();
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

/// The modules beside each other in one module of a crate, each with those that it imports.
type SiblingImports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns the modules of all crates that have modules in them, by crate and path. A file is a module, as a folder is.
fn siblings<'a>(files: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeMap<(&'a str, Vec<&'a str>), SiblingImports<'a>> {
    let mut modules: BTreeMap<_, SiblingImports> = BTreeMap::new();
    for (&file, imported) in files.iter().filter(|(file, _)| !file.ends_with("tests.rs")) {
        let (package, path) = split_source(file);
        let own = module(path);
        for other in imported {
            let other = module(split_source(other).1);
            let common = own.iter().zip(&other).take_while(|(own, other)| own == other).count();
            let beside = modules.entry((package, own[..common].to_vec())).or_default();
            beside.entry(own[common]).or_default().insert(other[common]);
            beside.entry(other[common]).or_default();
        }
    }
    modules
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let modules = siblings(&graph());
    let imports: usize = modules.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
    assert!(imports > 500, "imports were not found: {imports}");
    let mut wrong = Vec::new();
    for ((package, parent), siblings) in &modules {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            siblings.keys().map(|&module| (module, reach(siblings, module))).collect();
        let knots: BTreeSet<Vec<&str>> = reached
            .iter()
            .filter(|(module, all)| all.contains(*module))
            .map(|(module, all)| all.iter().copied().filter(|other| reached[other].contains(module)).collect())
            .collect();
        let parent = [&[*package, "src"], parent.as_slice()].concat().join("/");
        let advice = "move what they share to a module below or above them";
        wrong.extend(knots.iter().map(|knot| format!("{parent}: {} import each other: {advice}", knot.join(", "))));
    }
    assert_none(&wrong);
}

fn item(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or(rest, |(_, rest)| rest));
    let line = ["async ", "unsafe ", "const "].iter().fold(line, |line, word| match line.strip_prefix(word) {
        Some(rest) if rest.starts_with("fn ") => rest,
        _ => line,
    });
    let (kind, rest) = line.split_once(' ')?;
    let is_item = ["fn", "struct", "enum", "trait", "type", "const", "static"].contains(&kind);
    is_item.then(|| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
}

/// Returns true if a file uses its child, other than to declare or to re-export it.
fn uses_child(text: &str, child: &str) -> bool {
    let text = text.split("mod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| {
        let is_export =
            line.starts_with("pub") && line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with("use "));
        !is_export && !line.trim_start().starts_with("//")
    });
    let name = format!("{child}::");
    let is_inside = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    lines.flat_map(|line| line.match_indices(&name).map(move |(at, _)| &line[..at])).any(|before| !is_inside(before))
}

#[test]
fn a_module_and_its_child_do_not_use_each_other() {
    let (mut wrong, mut children) = (Vec::new(), 0);
    let files = source_files();
    for &parent in &files {
        let (package, path) = split_source(parent);
        let (own, text) = (module(path), tree::read(parent));
        let items: BTreeSet<&str> = text.lines().filter_map(item).collect();
        for &child in files.iter().filter(|child| !child.ends_with("tests.rs")) {
            let (of, path) = split_source(child);
            let of_child = module(path);
            let Some((name, base)) = of_child.split_last().filter(|(_, base)| of == package && **base == own) else {
                continue;
            };
            children += 1;
            let imported = imports(&tree::read(child), &of_child);
            let is_own =
                |path: &&Vec<String>| path.len() > base.len() && path.iter().zip(base).all(|(at, own)| at == own);
            let used = imported.iter().filter(is_own).map(|path| path[base.len()].as_str());
            let used: BTreeSet<&str> = used.filter(|used| items.contains(used)).collect();
            if !used.is_empty() && uses_child(&text, name) {
                let advice = "move what both share to a module beside the child";
                wrong.push(format!("{parent} uses {name}, which uses {used:?} of it: {advice}"));
            }
        }
    }
    assert!(children > 300, "children were not found: {children}");
    assert_none(&wrong);
}
