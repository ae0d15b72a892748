//! Bounds of memory and time for the most expensive valid inputs, each in a process of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// The memory bound, in MiB: half of a function's. A target compiles each document several times and keeps the results,
/// so a function needs less.
const MEMORY: u64 = 128;
/// The memory bound of an event, in MiB. A program without an input has 20 of them. A function can evaluate two events.
const EVENT_MEMORY: u64 = 96;
/// The time bound in seconds, in a build without optimisation on a busy machine.
const TIME: u64 = 60;

const PLUGIN: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\n";
const SANDBOX: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\n";

/// Runs an input and returns its memory in MiB and its time in milliseconds.
fn measured(target: &str, input: &str) -> (u64, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_measure"))
        .arg(target)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{target}: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let (memory, took) = text.trim().split_once(' ').unwrap();
    (memory.parse::<u64>().unwrap() / 1024, took.parse().unwrap())
}

/// Runs two cases at a time.
fn all(target: &str, most: u64, cases: Vec<(&str, String)>) {
    let (cases, wrong) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let next = || cases.lock().unwrap().next();
    let run = || {
        while let Some((name, input)) = next() {
            let (memory, took) = measured(target, &input);
            println!("{name:<34} {:>6} KiB in, {memory:>4} MiB, {took:>6} ms", input.len() / 1024);
            if memory > most || took > TIME * 1000 {
                wrong.lock().unwrap().push(format!("{name}: {memory} MiB, {took} ms"));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        run();
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns `count` lines, each made by `line` from its number.
fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

#[test]
fn documents() {
    let aliases = |levels: usize, width: usize| {
        let mut text = format!("{SANDBOX}labels:\n  a0: &a0 [x]\n");
        for level in 1..levels {
            let list = vec![format!("*a{}", level - 1); width].join(", ");
            text += &format!("  a{level}: &a{level} [{list}]\n");
        }
        text
    };
    let runners = "runners: {sh: {image: a}}\npreStart:\n";
    let pod = "pod: {script: \"#!/bin/sh\"}";
    let sandbox = |rest: &str| format!("{SANDBOX}{rest}\n");
    let units = |count, unit: fn(usize) -> String| {
        format!("{PLUGIN}{runners}{}", lines(count, |n| format!("  u{n}: {{{pod}{}}}\n", unit(n))))
    };
    let posted = |text: &str| {
        let webhook = format!("{{url: \"https://a.example.org/\", body: {{b: \"{text}\"}}}}");
        format!("{PLUGIN}preStart:\n  u: {{webhook: {webhook}}}\n")
    };
    let params = |count, line: fn(usize) -> String| {
        format!("{PLUGIN}params:\n{}", lines(count, |n| format!("  p{n}: {{type: string, {}}}\n", line(n))))
    };
    let x = "x".repeat(1_000_000);
    let blocks = lines(2_000, |n| format!("{}a:\n", " ".repeat(n + 1)));
    let texts = format!("labels:\n  a: &a {}\n{}", &x[..100_000], lines(900, |n| format!("  b{n}: *a\n")));
    let several = lines(100, |n| format!("---\n{SANDBOX}labels: {{a: \"{n}\"}}\n"));
    let previous = |n: usize| if n == 0 { ", after: []".to_owned() } else { format!(", after: [u{}]", n - 1) };
    let pattern = |n: usize| format!("required: false, pattern: '[a-f]{{60}}q*{}'", "z".repeat(n % 400 + 1));
    let script = format!("{PLUGIN}{runners}  u: {{pod: {{script: \"#!/bin/sh {x}\"}}}}\n");
    let default = format!("pattern: '(a?){{200}}b*', default: {}", "a".repeat(1_000_000));
    let default = format!("{PLUGIN}params:\n  p: {{type: string, {default}}}\n");
    let nearly_right = lines(100, |n| {
        let reads = lines(80, |m| format!("${{resources.r{:x<55}{n:0>3}{m:0>2}.outputs.o}}", ""));
        let name = format!("{n:0>4}").replace('0', "o");
        format!("  r{:x<55}{name}a: {{plugin: p, params: {{v: \"{reads}\"}}}}\n", "")
    });
    let nearly_right = format!("{PLUGIN}params: {{v: {{type: string}}}}\n---\n{SANDBOX}resources:\n{nearly_right}");
    let sends = lines(4, |n| {
        let webhook = "{url: \"https://a.example.org/\", body: \"${params.v}\"}";
        format!("  u{n}: {{webhook: {webhook}, outputs: {{o: {{value: '${{response.body}}'}}}}}}\n")
    });
    let reads = lines(4, |n| format!("${{units.u{n}.outputs.o}}"));
    let handed_on = lines(100, |n| {
        let value = if n == 0 { "x".to_owned() } else { format!("${{resources.q{}.outputs.o}}", n - 1) };
        format!("  q{n}: {{plugin: p, params: {{v: \"{value}\"}}}}\n")
    });
    let handed_on = format!(
        "{PLUGIN}params: {{v: {{type: string, default: x}}}}\npreStart:\n{sends}outputs: {{o: \"{reads}\"}}\n---\n\
         {SANDBOX}resources:\n{handed_on}"
    );
    let embedded = lines(2_000, |n| format!("  k{n}: \"@{{embed: f0}}\"\n"));
    let large = units(10_000, |_| String::new());
    let two = format!("{large}---\n{}", large.replace("name: p", "name: q"));
    let cases = vec![
        ("aliases, ten of ten of ten", aliases(12, 10)),
        ("aliases, doubled", aliases(64, 2)),
        ("aliases of a large text", format!("{SANDBOX}{texts}")),
        ("10 MB of text", sandbox(&format!("labels: {{a: {}}}", x.repeat(10)))),
        ("10 MB of keys", sandbox(&format!("labels:\n{}", lines(700_000, |n| format!("  k{n}: v\n"))))),
        ("20,000 keys", sandbox(&format!("labels:\n{}", lines(20_000, |n| format!("  k{n}: v\n"))))),
        ("20,000 unknown keys", sandbox(&lines(20_000, |n| format!("k{n}: v\n")))),
        ("4 MB of brackets", sandbox(&format!("labels: {}", "[".repeat(4_000_000)))),
        ("60,000 lists", sandbox(&format!("labels: [{}]", "[],".repeat(60_000)))),
        ("2,000 levels of blocks", sandbox(&format!("labels:\n{blocks}"))),
        ("4 MB of quotes", sandbox(&format!("labels: {{a: \"{}\"}}", "\\\"".repeat(2_000_000)))),
        ("4 MB of empty documents", "---\n".repeat(1_000_000)),
        ("100 documents", several),
        ("1,000 units in a row", units(1_000, previous)),
        ("1,000 independent units", units(1_000, |n| format!(", after: [v{n}]"))),
        ("10,000 units, which are too many", large),
        ("100,000 units", units(100_000, |_| String::new())),
        ("2 plugins of 10,000 units", two),
        ("a script of 1 MB", script),
        ("300 KB of expressions in a text", posted(&"${target.name}".repeat(20_000))),
        ("a text that never closes", posted(&"${".repeat(500_000))),
        ("6,000 patterns of 1 KB", params(6_000, pattern)),
        ("8 patterns with cases of all letters", params(8, |_| r"required: false, pattern: '(?i)\p{any}'".to_owned())),
        ("a long default", default),
        ("20,000 calls of unknown functions", posted(&"${aaaaaaaaaaaaaaaaaaaaaa(1)}".repeat(20_000))),
        ("names that are nearly right", nearly_right),
        ("values that are handed on", handed_on),
        ("50,000 placeholders", sandbox(&format!("labels: {{a: \"{}\"}}", "@{x}".repeat(50_000)))),
        ("embedded again and again", format!("{SANDBOX}labels:\n{embedded}%%%%\n{x}")),
    ];
    all("documents", MEMORY, cases);
}

/// The bodies that take the most memory and time for their length, and sources that read all of them.
#[test]
fn sources() {
    let source = |when: &str, document: &str| {
        let entries = format!("  - {{when: \"${{{when}}}\", ignore: x}}\n").repeat(99);
        format!(
            "apiVersion: ebb.dev/v1\nkind: Source\nname: s\nverify: {{bearer: {{secret: S}}}}\nid: \"${{body.?id}}\"\n\
             target: {{kind: sandbox, name: a}}\ndocument: {document}\nevents:\n{entries}\
             \x20 - {{when: \"${{true}}\", apply: {{}}}}\n%%%%\n"
        )
    };
    let reads = source("body.action == 'x'", "{labels: {a: \"${body.?title}\"}}");
    let copies = source("body.?l.orValue([]) == [1]", "{labels: {a: \"${body.l}\"}}");
    let returns = source("false", "{resources: {r: {plugin: p, params: {x: \"${body.l}\"}}}}");
    let keys = |count: usize| format!("{{\"l\":{{{}\"z\":0}}}}", lines(count, |n| format!("\"{n}\":{{}},")));
    let list = |item: &str, count: usize| format!("{{\"l\":[{}0]}}", item.repeat(count));
    let bodies = [
        ("4 MB of lists", list("[],", 1_390_000)),
        ("lists", list("[],", 119_000)),
        ("lists of a number", list("[1],", 59_000)),
        ("mappings of a number", list("{\"a\":0},", 59_000)),
        ("keys", keys(119_000)),
        ("numbers", list("0,", 119_000)),
        ("numbers and a text of 3 MB", format!("{{\"t\":\"{}\",{}", "x".repeat(3 << 20), &list("0,", 119_000)[1..])),
        ("a text of escapes", format!("{{\"l\":\"{}\"}}", "\\n".repeat(2_000_000))),
        ("texts", list("\"a text of honest length\",", 119_000)),
    ];
    for (name, source) in [("reads", reads), ("copies", copies), ("returns", returns)] {
        println!("{name}");
        all("sources", EVENT_MEMORY, bodies.iter().map(|(name, body)| (*name, format!("{source}{body}"))).collect());
    }
}

#[test]
fn expressions() {
    let text = "ab ".repeat(350_000);
    let list = |length: usize| format!("[{}]", (0..length).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let over = |expression: &str, body: &str| format!("{expression}\n%%%%\n{body}");
    let long = serde_json::json!({ "t": text }).to_string();
    let numbers = format!("{{\"l\": {}}}", list(5_000));
    let b = "response.body";
    all(
        "expressions",
        MEMORY,
        vec![
            ("replace by itself", over(&format!("{b}.t.replace(\"a\", {b}.t)"), &long)),
            ("split and joined", over(&format!("{b}.t.split(\"\").join({b}.t)"), &long)),
            ("doubled in a text", over(&vec![format!("{b}.t"); 80].join(" + "), &long)),
            ("doubled in a list", over(&vec![format!("{b}.l"); 80].join(" + "), &numbers)),
            ("squared", over(&format!("{b}.l.map(a, {b}.l.map(c, a * c))"), &numbers)),
            ("squared texts", over(&format!("{b}.t.split(\" \").map(a, {b}.t)"), &long)),
            (
                "a map of texts",
                over(&format!("[1,2,3,4,5,6,7,8,9].map(a, [1,2,3,4,5,6,7,8,9].map(c, {b}.t + {b}.t))"), &long),
            ),
            ("a chain of loops", over(&format!("{b}.l{}", ".map(a, [a, a]).map(a, a[0])".repeat(5)), &numbers)),
            ("a regular expression", over(&format!("{b}.t.matches(\"(a|b|ab)*(a|b| )*c$\")"), &long)),
            (
                "a regular expression that counts",
                over(&format!("{b}.t.matches(\"((a{{1,100}}){{1,100}}){{1,100}}\")"), &long),
            ),
            (
                "a regular expression from outside",
                over(
                    &format!("{b}.l.exists(a, \"x\".matches({b}.p))"),
                    &format!("{{\"p\": \"{}\", \"l\": {}}}", "(a{50}){50}|".repeat(200), list(200)),
                ),
            ),
            ("an expression that is too long", over(&format!("1{}", " + 1".repeat(1_000_000)), "1")),
            ("nested parentheses", over(&format!("{}1{}", "(".repeat(2_000), ")".repeat(2_000)), "1")),
            ("nested lists", over(&format!("{}{}", "[".repeat(2_000), "]".repeat(2_000)), "1")),
            ("nested conditions", over(&format!("{}1", "true ? ".repeat(500)), "1")),
            ("negations", over(&format!("{}true", "!".repeat(4_000)), "1")),
            ("a nested response", over(&format!("{b}[0][0]"), &format!("{}{}", "[".repeat(120), "]".repeat(120)))),
            ("comparing large values", over(&format!("{b}.l.all(a, {b}.l == {b}.l)"), &numbers)),
            ("looking for large values", over(&format!("{b}.t.split(\" \").all(a, a in {b}.t.split(\" \"))"), &long)),
        ],
    );
}
