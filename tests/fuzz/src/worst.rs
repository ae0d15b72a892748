//! The most expensive documents of each kind, and the work to compile them.

use std::collections::BTreeMap;

use ebb_documents::compile::{self, BoundPlugin};
use ebb_documents::diagnostic::Diagnostics;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::{PluginDoc, SandboxDoc};
use semver::Version;

const PLUGIN: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\n";
const SANDBOX: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\n";

/// A sandbox whose resources all use one plugin.
#[derive(Debug)]
pub struct WorstCase {
    pub name: &'static str,
    /// The code of the expected error; `None` if the document is valid.
    pub refused: Option<&'static str>,
    sandbox: SandboxDoc,
    plugin: PluginDoc,
}

impl WorstCase {
    fn new(name: &'static str, refused: Option<&'static str>, plugin: &str, sandbox: &str) -> Self {
        let plugin = load::plugins("p.yaml", &format!("{PLUGIN}{plugin}"), &NoFiles, &DocumentVars::none());
        let plugin = plugin.unwrap_or_else(|errors| panic!("{name}: {errors}")).remove(0);
        let sandbox = load::sandbox("s.yaml", &format!("{SANDBOX}{sandbox}"), &NoFiles, &DocumentVars::none());
        Self { name, refused, sandbox: sandbox.unwrap_or_else(|errors| panic!("{name}: {errors}")), plugin }
    }

    /// Compiles the sandbox.
    ///
    /// # Errors
    /// The errors of the documents.
    pub fn compile(&self) -> Result<usize, Diagnostics> {
        let version = Version::new(1, 0, 0);
        let bound = BoundPlugin { plugin: &self.plugin, version: &version, digest: "sha256:00" };
        let bound: BTreeMap<String, BoundPlugin<'_>> =
            self.sandbox.resources.iter().map(|resource| (resource.name.value.clone(), bound)).collect();
        let (plan, _) = compile::plan(&self.sandbox, &bound)?;
        Ok(plan.hooks.iter().map(|hook| hook.units.len()).sum())
    }
}

/// Returns `count` lines, each made by `line` from its number.
fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

pub fn cases() -> Vec<WorstCase> {
    let one = "resources: {r: {plugin: p}}\n";
    let param = |n: usize, pattern: &str| {
        format!("  p{n}: {{type: string, required: false, pattern: '{pattern}{}'}}\n", "z".repeat(n % 400 + 1))
    };
    let params = |count: usize, pattern: &str| format!("params:\n{}", lines(count, |n| param(n, pattern)));
    let hook = "webhook: {url: \"https://a.example.org/\", body:";
    let resources = |count: usize, value: &dyn Fn(usize) -> String| {
        let name = |n: usize| format!("{n:0>4}").replace('0', "o");
        format!(
            "resources:\n{}",
            lines(count, |n| {
                format!("  r{:x<55}{}a: {{plugin: p, params: {{v: \"{}\"}}}}\n", "", name(n), value(n))
            })
        )
    };
    let chained = |outputs: usize| {
        let made = lines(outputs, |n| {
            format!("  u{n}: {{{hook} \"${{params.v}}\"}}, outputs: {{o: {{value: '${{response.body}}'}}}}}}\n")
        });
        let all = lines(outputs, |n| format!("${{units.u{n}.outputs.o}}"));
        format!("params: {{v: {{type: string, default: x}}}}\npreStart:\n{made}outputs: {{o: \"{all}\"}}\n")
    };
    let wired = |count: usize| {
        let value = |n: usize| match n {
            0 => "x".to_owned(),
            n => format!("${{resources.q{}.outputs.o}}", n - 1),
        };
        format!("resources:\n{}", lines(count, |n| format!("  q{n}: {{plugin: p, params: {{v: \"{}\"}}}}\n", value(n))))
    };
    let plain = "params: {v: {type: string, default: x}}\npreStart: {u: {webhook: {url: \"https://a.example.org/${resource.key}\"}}}\n";
    vec![
        WorstCase::new("patterns of 1 KB", None, &params(390, "a{900}"), one),
        WorstCase::new("more patterns of 1 KB", Some("compile-limit"), &params(6_000, "[a-f]{60}q*"), one),
        WorstCase::new("patterns that are too large", Some("param"), &params(390, r"\w{900}"), one),
        WorstCase::new("cases of all letters", None, &params(40, r"(?i)[ -\x{10FFFF}]"), one),
        WorstCase::new("more cases of all letters", Some("compile-limit"), &params(200, r"(?i)\p{any}"), one),
        WorstCase::new(
            "a long default",
            Some("compile-limit"),
            &format!("params:\n  p: {{type: string, pattern: '(a?){{200}}b*', default: {}}}\n", "a".repeat(1_000_000)),
            one,
        ),
        WorstCase::new(
            "expressions",
            None,
            &format!("preStart:\n  u: {{{hook} \"{}\"}}}}\n", "${target.name}".repeat(270_000)),
            one,
        ),
        WorstCase::new(
            "mistakes",
            Some("unknown-function"),
            &format!("preStart:\n  u: {{{hook} \"{}\"}}}}\n", "${aaaaaaaaaaaaaaaaaaaaaa(1)}".repeat(100_000)),
            one,
        ),
        WorstCase::new(
            "names that are nearly right",
            Some("unknown-resource"),
            plain,
            &resources(500, &|n| lines(80, |m| format!("${{resources.r{:x<55}{n:0>3}{m:0>2}.outputs.o}}", ""))),
        ),
        WorstCase::new(
            "units",
            None,
            &format!("preStart:\n{}", lines(9_000, |n| format!("  u{n}: {{{hook} \"${{target.name}}\"}}}}\n"))),
            one,
        ),
        WorstCase::new("values that are handed on", None, &chained(4), &wired(100)),
        WorstCase::new("values that are handed on and on", None, &chained(20), &wired(499)),
    ]
}
