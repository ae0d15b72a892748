//! What the targets of a simulation ask for: random plugins, written as documents.

use std::fmt::Write as _;

use super::super::SimRandom;

/// How a unit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitAction {
    Pod,
    /// A webhook that answers with its result.
    Once,
    /// A webhook that answers 202 and calls back.
    Later,
    /// A webhook that answers 202 and wants to be asked again.
    Again,
}

impl UnitAction {
    /// That of a webhook unit, by the address of its server.
    pub(super) fn of_url(url: &str) -> Self {
        match url {
            _ if url.contains("/later/") || url.contains("/indexes") => Self::Later,
            _ if url.contains("/again/") || url.contains("/certificates") => Self::Again,
            _ => Self::Once,
        }
    }

    fn any(random: &SimRandom) -> Self {
        [Self::Pod, Self::Pod, Self::Once, Self::Later, Self::Later, Self::Again][random.below(6) as usize]
    }

    fn path(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Once => "once",
            Self::Later => "later",
            Self::Again => "again",
        }
    }
}

/// A plugin's name, version and document.
pub type PluginText = (String, String, String);

/// Plugins and a target's document that names them.
#[derive(Clone, Debug)]
pub struct TargetScenario {
    pub plugins: Vec<PluginText>,
    /// The target's document; `NAME` stands for its name.
    pub document: String,
}

/// Units of a design that lies over more than one head item.
const WIDE: u64 = 280;

struct RandomUnit {
    action: UnitAction,
    hook: &'static str,
    reads: Vec<usize>,
    after: Vec<usize>,
    rest: String,
}

impl TargetScenario {
    /// The design of a seed. One in a hundred has units for more than one head item.
    pub fn random(seed: u64) -> Self {
        let random = SimRandom::new(seed);
        let name = format!("d{:x}", seed & 0xffff_ffff);
        if random.below(100) == 0 {
            return Self::wide(&random, &name);
        }
        let mut plugins = vec![(format!("{name}a"), "1.0.0".to_owned(), plugin(&random, &format!("{name}a"), false))];
        let mut document =
            format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n  a: {{plugin: {name}a@1.0.0}}\n");
        if random.below(3) == 0 {
            let text = plugin(&random, &format!("{name}b"), true);
            plugins.push((format!("{name}b"), "1.0.0".to_owned(), text));
            writeln!(
                document,
                "  b:\n    plugin: {name}b@1.0.0\n    params: {{wire: \"${{resources.a.outputs.first}}\"}}"
            )
            .expect("strings take everything");
        }
        Self { plugins, document }
    }

    fn wide(random: &SimRandom, name: &str) -> Self {
        let mut text = head(name, false);
        text.push_str("preStart:\n");
        let count = WIDE + random.below(20);
        for unit in 0..count {
            let after = if unit % 64 == 63 { format!("    after: [u{}]\n", unit - 63) } else { String::new() };
            writeln!(text, "  u{unit}:\n{after}    webhook: {{url: \"https://outside.test/once/u{unit}\"}}\n    outputs: {{id: {{value: \"${{response.body.id}}\"}}}}").expect("strings take everything");
        }
        let all: Vec<String> = (0..count).map(|unit| format!("u{unit}")).collect();
        writeln!(text, "  last:\n    after: [{}]\n    webhook: {{url: \"https://outside.test/later/last\"}}\n    outputs: {{id: {{value: \"${{response.body.id}}\"}}}}", all.join(", ")).expect("strings take everything");
        text.push_str("postStop:\n");
        for (number, group) in all.chunks(40).enumerate() {
            writeln!(
                text,
                "  x{number}:\n    undoes: [{}]\n    webhook: {{url: \"https://outside.test/once/x{number}\"}}",
                group.join(", ")
            )
            .expect("strings take everything");
        }
        text.push_str("outputs: {first: \"${units.u0.outputs.id}\"}\n");
        let document =
            format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n  a: {{plugin: {name}@1.0.0}}\n");
        Self { plugins: vec![(name.to_owned(), "1.0.0".to_owned(), text)], document }
    }
}

fn head(name: &str, wired: bool) -> String {
    let wire = if wired { "\n  wire: {type: string}" } else { "" };
    format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {name}@1.0.0\nparams:\n  off: {{type: boolean, default: false}}{wire}\n\
         runners:\n  shell: {{image: \"busybox:1.37\"}}\n\
         defaults: {{timeout: 5m, retry: {{attempts: 3, backoff: 1s, maxBackoff: 4s}}}}\n"
    )
}

fn plugin(random: &SimRandom, name: &str, wired: bool) -> String {
    let count = 1 + random.below(6) as usize;
    let posts = if random.below(3) == 0 { random.below(3) as usize } else { 0 };
    let first_post = count.saturating_sub(posts).max(1);
    let units: Vec<RandomUnit> = (0..count).map(|number| unit(random, number, first_post)).collect();
    let mut text = head(name, wired);
    for hook in ["preStart", "postStart"] {
        if units.iter().any(|unit| unit.hook == hook) {
            writeln!(text, "{hook}:").expect("strings take everything");
        }
        for (number, unit) in units.iter().enumerate().filter(|(_, unit)| unit.hook == hook) {
            text.push_str(&setup(number, unit, wired && number == 0));
        }
    }
    if random.below(4) == 0 {
        let way = UnitAction::any(random);
        writeln!(text, "preStop:\n  drain:\n{}", body(way, "drain", &[(0, "u0".to_owned())]))
            .expect("strings take everything");
    }
    text.push_str(&undos(random, &units));
    text.push_str("outputs: {first: \"${units.u0.outputs.id}\"}\n");
    text
}

fn unit(random: &SimRandom, number: usize, first_post: usize) -> RandomUnit {
    let hook = if number < first_post { "preStart" } else { "postStart" };
    let (mut reads, mut after) = (Vec::new(), Vec::new());
    for other in 0..number {
        match random.below(5) {
            0 | 1 => reads.push(other),
            2 if (other < first_post) == (number < first_post) => after.push(other),
            _ => {}
        }
    }
    let mut rest = String::new();
    if random.below(14) == 0 && number > 0 {
        rest.push_str("    when: ${params.off}\n");
    }
    match random.below(4) {
        0 => rest.push_str("    timeout: 30s\n"),
        1 => rest.push_str("    timeout: 2m\n    retry: {attempts: 2, backoff: 500ms}\n"),
        _ => {}
    }
    RandomUnit { action: UnitAction::any(random), hook, reads, after, rest }
}

fn list(key: &str, names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("    {key}: [{}]\n", names.join(", ")) }
}

/// The lines that say how a unit runs and what it reads.
fn body(way: UnitAction, name: &str, reads: &[(usize, String)]) -> String {
    if way == UnitAction::Pod {
        let mut text = "    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n".to_owned();
        if !reads.is_empty() {
            text.push_str("    inputs:\n");
        }
        for (_, read) in reads {
            let value = value_of(read);
            writeln!(text, "      {read}: {value}").expect("strings take everything");
        }
        return text;
    }
    let pairs: Vec<String> = reads.iter().map(|(_, read)| format!("{read}: \"{}\"", value_of(read))).collect();
    format!("    webhook: {{url: \"https://outside.test/{}/{name}\", body: {{{}}}}}\n", way.path(), pairs.join(", "))
}

fn value_of(read: &str) -> String {
    if read == "wire" { "${params.wire}".to_owned() } else { format!("${{units.{read}.outputs.id}}") }
}

fn setup(number: usize, unit: &RandomUnit, wired: bool) -> String {
    let mut reads: Vec<(usize, String)> = unit.reads.iter().map(|&read| (read, format!("u{read}"))).collect();
    if wired {
        reads.push((0, "wire".to_owned()));
    }
    let after: Vec<String> = unit.after.iter().map(|after| format!("u{after}")).collect();
    let outputs = match unit.action {
        UnitAction::Pod => "    outputs: {id: {file: /out/id}}\n",
        UnitAction::Once | UnitAction::Later | UnitAction::Again => {
            "    outputs: {id: {value: \"${response.body.id}\"}}\n"
        }
    };
    let (body, after) = (body(unit.action, &format!("u{number}"), &reads), list("after", &after));
    format!("  u{number}:\n{}{after}{body}{outputs}", unit.rest)
}

/// Undos, some of them of two units at once: those that lie side by side, so that their order has no circle.
fn undos(random: &SimRandom, units: &[RandomUnit]) -> String {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for number in 0..units.len() {
        match (random.below(8), groups.last_mut()) {
            (0, _) if number > 0 => {}
            (1, Some(last)) if last.len() == 1 && last[0] + 1 == number => last.push(number),
            _ => groups.push(vec![number]),
        }
    }
    let mut text = "postStop:\n".to_owned();
    for (number, group) in groups.iter().enumerate() {
        let depends = |other: &usize| {
            let unit = &units[*other];
            group.iter().any(|one| unit.reads.contains(one) || unit.after.contains(one))
        };
        let later = groups.iter().enumerate().skip(number + 1);
        let after = later.filter(|(_, other)| other.iter().any(depends));
        let after: Vec<String> = after.map(|(other, _)| format!("x{other}")).collect();
        let undone: Vec<String> = group.iter().map(|unit| format!("u{unit}")).collect();
        let reads: Vec<(usize, String)> = group.iter().zip(&undone).map(|(unit, name)| (*unit, name.clone())).collect();
        let body = body(UnitAction::any(random), &format!("x{number}"), &reads);
        write!(text, "  x{number}:\n{}{}{body}", list("undoes", &undone), list("after", &after))
            .expect("strings take everything");
    }
    text
}
