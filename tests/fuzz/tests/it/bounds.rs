//! Bounds of memory and time for the most expensive valid inputs, those of `bounds.yaml`, each in a process of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use serde::Deserialize;

/// The memory bound, in MiB: half of a function's. A target compiles each document several times and keeps the results,
/// so a function needs less.
const MEMORY: u64 = 128;
/// The memory bound of an event, in MiB. A program without an input has 20 of them. A function can evaluate two events.
const EVENT_MEMORY: u64 = 96;
/// The time bound in seconds, in a build without optimisation on a busy machine.
const TIME: u64 = 60;

/// The tables of `bounds.yaml`, which describes them.
#[derive(Deserialize)]
struct CostlyInputs {
    documents: Vec<(String, CostlyText)>,
    sources: Vec<(String, String, String)>,
    bodies: Vec<(String, CostlyText)>,
    expressions: Vec<(String, CostlyText, CostlyText)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CostlyText {
    Text(String),
    Parts(Vec<CostlyText>),
    Repeated { times: Option<usize>, of: Box<CostlyText> },
}

static INPUTS: LazyLock<CostlyInputs> = LazyLock::new(|| {
    let inputs: serde_json::Value = serde_saphyr::from_str(include_str!("bounds.yaml")).unwrap();
    serde_json::from_value(inputs).unwrap()
});

impl CostlyText {
    fn text(&self) -> String {
        let mut text = String::new();
        self.write(0, 0, &mut text);
        text
    }

    /// Appends the text, with the number of its repetition and of the repetition around that.
    fn write(&self, number: usize, outer: usize, to: &mut String) {
        match self {
            Self::Text(text) if !text.contains('<') => to.push_str(text),
            Self::Text(text) => {
                let marks = [("<n>", number), ("<n+1>", number + 1), ("<m>", outer)];
                let replaced = marks.iter().fold(text.clone(), |text, (mark, of)| text.replace(mark, &of.to_string()));
                to.push_str(&replaced);
            }
            Self::Parts(parts) => parts.iter().for_each(|part| part.write(number, outer, to)),
            Self::Repeated { times, of } => match (times.unwrap_or(number), &**of) {
                (times, Self::Text(text)) if !text.contains('<') => to.push_str(&text.repeat(times)),
                (times, of) => (0..times).for_each(|inner| of.write(inner, number, to)),
            },
        }
    }
}

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

#[test]
fn documents() {
    let cases = INPUTS.documents.iter().map(|(name, text)| (name.as_str(), text.text()));
    all("documents", MEMORY, cases.collect());
}

#[test]
fn sources() {
    for (name, when, document) in &INPUTS.sources {
        println!("{name}");
        let entries = format!("  - {{when: \"${{{when}}}\", ignore: x}}\n").repeat(99);
        let source = format!(
            "apiVersion: ebb.dev/v1\nkind: Source\nname: s\nverify: {{bearer: {{secret: S}}}}\nid: \"${{body.?id}}\"\n\
             target: {{kind: sandbox, name: a}}\ndocument: {document}\nevents:\n{entries}\
             \x20 - {{when: \"${{true}}\", apply: {{}}}}\n%%%%\n"
        );
        let bodies = INPUTS.bodies.iter().map(|(name, body)| (name.as_str(), source.clone() + &body.text()));
        all("sources", EVENT_MEMORY, bodies.collect());
    }
}

#[test]
fn expressions() {
    let cases = INPUTS
        .expressions
        .iter()
        .map(|(name, expression, body)| (name.as_str(), format!("{}\n%%%%\n{}", expression.text(), body.text())));
    all("expressions", MEMORY, cases.collect());
}
