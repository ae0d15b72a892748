//! Checks the examples of the book, of README.md and of SKILL.md as a reader takes them: each document is loaded and compiled with
//! those that it names, and the arguments of each command are parsed.
//!
//! A comment above a block says what a reader knows from the text:
//!
//! - `file: NAME`: commands and documents name the block as this file.
//! - `part of: NAME`: the block continues this document above it. `a plugin` is any plugin, and `preset NAME` is the
//!   source that `ebb source new` prints.
//! - `excerpt of: FILE`: the block is a part of a file of the repository.
//! - `values of: CHART`: the block has values for a chart.
//! - `foreign: WHAT`: the block is another program's.

use std::collections::BTreeMap;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use clap::error::ErrorKind;
use ebb_documents::event::{EventInput, EventOutcome};
use ebb_documents::load::{self, Document, DocumentVars, FileError, FileSource, NoFiles};
use ebb_documents::{Diagnostic, DiagnosticStyle, PluginDoc, RouteGroupDoc, SourceDoc, compile, preset};
use ebb_protocol::{Batch, Callback, ChangeList, ProblemDetails};
use serde_json::Value;

use crate::commands::EbbCli;
use crate::{CliError, Result, offline};

#[path = "../../../tests/src/markdown.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod markdown;

use markdown::CodeBlock;

/// Pages whose commands name files of the reader.
const FILES_OF_THE_READER: [&str; 3] = ["cli.md", "from-signadot.md", "updates.md"];

struct Page {
    path: PathBuf,
    text: String,
    blocks: Vec<CodeBlock>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns README.md, SKILL.md and the pages of the book, in the order of their paths.
fn pages() -> Vec<Page> {
    // Other pages are those of a reader.
    let pages = ["README.md", "SKILL.md", "docs/src/*.md"];
    let listed = Command::new("git").arg("ls-files").args(pages).current_dir(root()).output().unwrap();
    let mut files: Vec<PathBuf> =
        String::from_utf8(listed.stdout).unwrap().lines().map(|name| root().join(name)).collect();
    assert!(files.len() > 20, "{files:?}");
    files.sort();
    files.into_iter().map(Page::read).collect()
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = markdown::blocks(&path.display().to_string(), &text);
        Self { path, text, blocks }
    }

    fn has_name(&self, name: &str) -> bool {
        self.path.ends_with(name)
    }

    fn file(&self, name: &str) -> Option<&CodeBlock> {
        self.blocks.iter().find(|block| block.mark.strip_prefix("file: ") == Some(name))
    }

    fn linked<'a>(&self, pages: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        let links = self.text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let paths: Vec<PathBuf> = links.filter_map(|link| self.path.parent()?.join(link).canonicalize().ok()).collect();
        pages.iter().filter(move |page| paths.contains(&page.path))
    }

    /// Returns true if a reader of the page knows the content of a file that a command names.
    fn explains(&self, pages: &[Self], file: &str) -> bool {
        root().join(file).exists()
            || self.file(file).is_some()
            || self.linked(pages).any(|page| page.file(file).is_some())
            || [format!(">{file}"), format!("> {file}"), format!("to `{file}`")].iter().any(|it| self.text.contains(it))
    }

    /// Returns the complete document of a block, or `None` if it is not a document of Ebb. Checks such a block.
    fn document(&self, block: &CodeBlock) -> Option<String> {
        let CodeBlock { place, mark, text, .. } = block;
        let yaml = || serde_saphyr::from_str::<Value>(text).unwrap_or_else(|error| panic!("{place}: {error}"));
        if let Some(whole) = mark.strip_prefix("part of: ") {
            let whole = match whole.strip_prefix("preset ") {
                Some(name) => preset(name).unwrap_or_else(|| panic!("{place}: no preset {name}")).starter("part"),
                None if whole == "a plugin" => "apiVersion: ebb.dev/v1\nkind: Plugin\nname: part@1.0.0\n".to_owned(),
                None => {
                    let name = format!("\nname: {whole}\n");
                    let mut above = self.blocks.iter().take_while(|other| other.place != *place);
                    let named = above.find(|other| other.text.contains(&name));
                    named.unwrap_or_else(|| panic!("{place}: no document {whole} is above")).text.clone()
                }
            };
            return Some(whole + text);
        }
        if let Some(file) = mark.strip_prefix("excerpt of: ") {
            let whole = std::fs::read_to_string(root().join(file)).unwrap();
            assert!(whole.contains(text.as_str()), "{place}: {file} has another text");
            return None;
        }
        if let Some(chart) = mark.strip_prefix("values of: ") {
            let values = std::fs::read_to_string(root().join(chart).join("values.yaml")).unwrap();
            let values: Value = serde_saphyr::from_str(&values).unwrap();
            assert!(has_keys(&values, &yaml()), "{place}: the chart {chart} has no such value");
            return None;
        }
        if mark.starts_with("foreign: ") {
            yaml();
            return None;
        }
        if text.starts_with("apiVersion: ") && !text.starts_with("apiVersion: ebb.dev/") {
            let object = yaml();
            assert!(object["kind"].is_string() && object["metadata"]["name"].is_string(), "{place}: not an object");
            return None;
        }
        Some(text.clone())
    }
}

/// Returns true if the mapping `known` has each key of `given`, also in mappings below. An empty mapping can have any
/// key.
fn has_keys(known: &Value, given: &Value) -> bool {
    match (known.as_object(), given.as_object()) {
        (Some(known), Some(given)) if !known.is_empty() => {
            given.iter().all(|(key, value)| known.get(key).is_some_and(|known| has_keys(known, value)))
        }
        _ => true,
    }
}

/// The files that documents of a page embed. A script that the page does not show is empty.
struct PageFiles<'a>(&'a Page);

impl FileSource for PageFiles<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        match self.0.file(path) {
            Some(block) => Ok(block.text.clone().into_bytes()),
            None if path.ends_with(".sh") => Ok(b"#!/bin/sh\n".to_vec()),
            None => Err(FileError::Missing(path.to_owned())),
        }
    }
}

/// The documents of a block.
struct Example<'a> {
    page: &'a Page,
    block: &'a CodeBlock,
    documents: Vec<Document>,
}

impl Example<'_> {
    fn is_part(&self) -> bool {
        self.block.mark.starts_with("part of: ")
    }
}

/// Loads the documents of all pages. Adds the errors to `wrong`.
fn examples<'a>(pages: &'a [Page], wrong: &mut Vec<String>) -> Vec<Example<'a>> {
    let vars = DocumentVars::parse(["name=pr-1"]).unwrap();
    let mut examples = Vec::new();
    for page in pages {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            let Some(text) = page.document(block) else { continue };
            match load::documents(&block.place, &text, &PageFiles(page), &vars) {
                Ok((documents, _)) => examples.push(Example { page, block, documents }),
                Err(errors) => wrong.push(errors.plain()),
            }
        }
    }
    examples
}

/// Returns the plugins of the book, and those of a page before them: pages about different things share names.
fn plugins(examples: &[Example<'_>], page: &Page) -> Vec<PluginDoc> {
    let mut whole: Vec<&Example<'_>> = examples.iter().filter(|example| !example.is_part()).collect();
    whole.sort_by_key(|example| example.page.path != page.path);
    let plugins = whole.into_iter().flat_map(|example| &example.documents).filter_map(|document| match document {
        Document::Plugin(plugin) => Some(plugin.clone()),
        _ => None,
    });
    plugins.collect()
}

/// Compiles a document with these plugins. Returns the warnings.
fn compiled(document: &Document, plugins: &[PluginDoc]) -> Result<Vec<Diagnostic>> {
    match document {
        Document::Plugin(plugin) => Ok(compile::check_plugin(plugin)?.0),
        Document::Sandbox(target) | Document::RouteGroup(RouteGroupDoc { target, .. }) => {
            Ok(offline::plan(target, plugins)?.warnings)
        }
        Document::Source(source) => Ok(compile::event_source(source)?.1),
        Document::Subscription(subscription) => {
            compile::subscription(subscription)?;
            Ok(Vec::new())
        }
        Document::Connection(_) => Ok(Vec::new()),
    }
}

/// Compiles the document that a source makes of an event of GitHub with these plugins.
fn target_of(source: &SourceDoc, event: &Value, plugins: &[PluginDoc]) -> Result<()> {
    let (source, _) = compile::event_source(source)?;
    let input = EventInput { headers: BTreeMap::new(), body: event.clone(), fetched: None };
    match source.explain(&input).outcome {
        Ok(EventOutcome::Apply { document, .. }) => {
            let target = load::sandbox(&source.name, &document, &NoFiles, &DocumentVars::none())?;
            offline::plan(&target, plugins).map(drop)
        }
        other => Err(CliError::failed(format!("the event of the tutorial has the effect {other:?}"))),
    }
}

#[test]
fn each_document_of_the_book_is_valid() {
    let (pages, mut wrong) = (pages(), Vec::new());
    let examples = examples(&pages, &mut wrong);
    let opened =
        pages.iter().find_map(|page| page.file("opened.json")).expect("the tutorial about GitHub has an event");
    let opened: Value = serde_json::from_str(&opened.text).unwrap();
    for example in &examples {
        let plugins = plugins(&examples, example.page);
        let place = &example.block.place;
        for document in &example.documents {
            match compiled(document, &plugins) {
                Ok(warnings) if example.is_part() => drop(warnings),
                Ok(warnings) => wrong.extend(warnings.iter().map(Diagnostic::plain)),
                Err(error) => wrong.push(format!("{place}: {}", error.text(DiagnosticStyle::Plain))),
            }
            if let Document::Source(source) = document
                && source.preset.as_ref().is_some_and(|preset| preset.value == "github")
                && !example.is_part()
                && let Err(error) = target_of(source, &opened, &plugins)
            {
                wrong.push(format!("{place}: {}", error.text(DiagnosticStyle::Plain)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(examples.len() > 40, "{} documents", examples.len());
}

#[test]
fn each_json_of_the_book_is_valid() {
    let pages = pages();
    let mut found = 0;
    for page in &pages {
        for CodeBlock { place, text, .. } in page.blocks.iter().filter(|block| block.language == "json") {
            found += 1;
            let result = if page.has_name("tokens.md") || page.has_name("sign-in.md") {
                ebb_api::OidcIssuers::parse(text).map(drop)
            } else if page.has_name("internals/relay.md") {
                serde_json::from_str::<Batch>(text).map(drop).map_err(|error| error.to_string())
            } else if page.has_name("units/webhook.md") {
                serde_json::from_str::<Callback>(text).map(drop).map_err(|error| error.to_string())
            } else if page.has_name("api.md") && text.contains("\"seq\"") {
                serde_json::from_str::<ChangeList>(text).map(drop).map_err(|error| error.to_string())
            } else if page.has_name("api.md") {
                serde_json::from_str::<ProblemDetails>(text).map(drop).map_err(|error| error.to_string())
            } else {
                serde_json::from_str::<Value>(text).map(drop).map_err(|error| error.to_string())
            };
            assert_eq!(result, Ok(()), "{place}");
        }
    }
    assert!(found > 8, "{found} blocks");
}

/// Returns the arguments of each `ebb` in a text of a shell.
fn commands(text: &str) -> Vec<Vec<String>> {
    let before_a_command = ["|", ";", "&", "(", "-", "exec", "cargo run --bin"];
    let starts = text.match_indices("ebb ").filter(|(at, _)| {
        let line = text[..*at].rsplit('\n').next().unwrap_or_default();
        let before = line.trim_end();
        let is_word = line.is_empty() || line.ends_with([' ', '(']);
        is_word && (before.is_empty() || before_a_command.iter().any(|end| before.ends_with(*end)))
    });
    let rests = starts.map(|(at, name)| &text[at + name.len()..]);
    rests.map(|rest| arguments(rest.strip_prefix("-- ").unwrap_or(rest))).collect()
}

/// Returns the words of a text of a shell, up to the end of the command.
fn arguments(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                // The quote of a command in quotes ends it.
                let Some((quoted, after)) = rest.as_str().split_once(c) else { break };
                word.get_or_insert_default().push_str(quoted);
                rest = after.chars();
            }
            '\\' if rest.as_str().starts_with('\n') => {
                rest.next();
            }
            '|' | ';' | '&' | '<' | '>' | ')' | '\n' => break,
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn commands_are_found_in_texts_of_shells() {
    let text = r#"ebb why a
eval "$(ebb logs a -o json)"; helm upgrade ebb c
x=1 | ebb plan \
  b.yaml --reason 'c d' >e
sh -c 'exec ebb dev'
- ebb token list
cargo run --bin ebb -- run f
aws --name ebb g
"#;
    let expected = ["why a", "logs a -o json", "plan b.yaml --reason c d", "dev", "token list", "run f"];
    let found: Vec<String> = commands(text).iter().map(|words| words.join(" ")).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_command_of_the_book_is_valid() {
    let (pages, mut wrong) = (pages(), Vec::new());
    let mut found = 0;
    for page in &pages {
        for block in page.blocks.iter().filter(|block| ["sh", "console", "yaml"].contains(&block.language.as_str())) {
            let is_session = block.language == "console";
            let typed =
                |line: &str| if is_session { line.strip_prefix("$ ").map(str::to_owned) } else { Some(line.into()) };
            let text: Vec<String> = block.text.lines().filter_map(typed).collect();
            for words in commands(&text.join("\n")) {
                found += 1;
                let place = &block.place;
                // A name in capitals stands for the value of the reader.
                let given = words.iter().map(|word| word.replace("ADDRESS", "192.0.2.1"));
                if let Err(error) = EbbCli::try_parse_from(once("ebb".to_owned()).chain(given))
                    && error.kind() != ErrorKind::DisplayVersion
                {
                    wrong.push(format!("{place}: {error}"));
                }
                let files = words.iter().filter(|word| word.ends_with(".yaml") || word.ends_with(".json"));
                let unknown = files.filter(|file| !page.explains(&pages, file));
                if !FILES_OF_THE_READER.iter().any(|name| page.has_name(name)) {
                    wrong.extend(unknown.map(|file| format!("{place}: the page does not tell the content of {file}")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 100, "{found} commands");
}
