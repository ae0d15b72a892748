//! Documents from files and standard input.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ebb_documents::load::{self, Document, DocumentVars, FolderFiles, MAX_DOCUMENT};
use ebb_documents::{Diagnostic, Diagnostics, PluginDoc, RouteGroupDoc, SandboxDoc};

use crate::{CliError, Result, TargetRef, output};

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// File with documents of any kind, or folder with such files; `-` reads standard input; repeatable
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SetArgs {
    /// Value of `@{NAME}` in documents; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
}

impl SetArgs {
    pub(crate) fn vars(&self) -> Result<DocumentVars> {
        DocumentVars::parse(&self.sets)
            .map_err(|error| CliError::broken(error.to_string()).with_hint("write --set NAME=VALUE, each name once"))
    }
}

/// The text of a document, its name in messages, and the folder of its embedded files.
#[derive(Clone, Debug)]
pub(crate) struct DocumentSource {
    /// The path as it was given, or `<stdin>`.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The folder of the file, or the working directory for standard input.
    pub(crate) folder: FolderFiles,
}

impl DocumentSource {
    /// Reads a file; `-` is standard input.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let is_input = path == Path::new("-");
        let name = if is_input { "<stdin>".to_owned() } else { path.display().to_string() };
        let read = if is_input { bounded(std::io::stdin()) } else { fs::File::open(path).and_then(bounded) };
        let bytes = read.map_err(|error| {
            let shown = if is_input { "standard input" } else { name.as_str() };
            let error = CliError::broken(format!("cannot read {shown}")).with_causes(&error);
            if is_input { error } else { error.with_hint("check the path") }
        })?;
        if bytes.len() > MAX_DOCUMENT {
            return Err(CliError::failed(format!("{name} is larger than {MAX_DOCUMENT} bytes"))
                .with_hint("load large data in a script instead of embedding it"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            CliError::failed(format!("{name} is not UTF-8: byte {at} is invalid")).with_hint("save it as UTF-8")
        })?;
        let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        Ok(Self { name, text, folder: FolderFiles::new(folder) })
    }

    /// Parses all documents of the text, and prints warnings.
    pub(crate) fn documents(&self, vars: &DocumentVars) -> Result<Vec<Document>, Diagnostics> {
        let (documents, warnings) = load::documents(&self.name, &self.text, &self.folder, vars)?;
        warn(warnings.iter());
        Ok(documents)
    }
}

/// Reads at most one byte more than a document may have, because a device can be endless.
fn bounded(file: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn warn<'a>(warnings: impl IntoIterator<Item = &'a Diagnostic>) {
    let drawn: Vec<String> = warnings.into_iter().map(|warning| warning.drawn(output::drawing())).collect();
    if !drawn.is_empty() {
        output::status_drawn(&drawn.join("\n"));
    }
}

/// Returns the files of a command. A folder stands for its YAML files, in the order of their names.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(|all| all.collect::<std::io::Result<Vec<_>>>());
        let entries =
            entries.map_err(|error| CliError::broken(format!("cannot read {}", path.display())).with_causes(&error))?;
        let is_yaml = |file: &PathBuf| file.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(is_yaml).collect();
        if found.is_empty() {
            return Err(CliError::failed(format!("the folder {} has no YAML file", path.display())));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Divides documents into those that a deployment stores by name and those of targets: sandboxes, targets of other kinds
/// and route groups.
pub(crate) fn divided(documents: impl IntoIterator<Item = Document>) -> (Vec<Document>, Vec<SandboxDoc>) {
    let (mut others, mut targets) = (Vec::new(), Vec::new());
    for document in documents {
        match document {
            Document::Sandbox(target) | Document::RouteGroup(RouteGroupDoc { target, .. }) => targets.push(target),
            other => others.push(other),
        }
    }
    (others, targets)
}

/// Returns the error for a document of another kind than `expected`, such as `a sandbox`.
pub(crate) fn unexpected(file: &str, document: &Document, expected: &str) -> CliError {
    CliError::failed(format!("{file} contains {}; expected {expected}", document.noun()))
}

/// Returns the documents for a command, which are `expected`. Others, with their files, are skipped if there is one.
fn used<T>(others: &[(String, Document)], used: Vec<T>, expected: &str) -> Result<Vec<T>> {
    if let (true, Some((file, other))) = (used.is_empty(), others.first()) {
        return Err(unexpected(file, other, expected));
    }
    for (file, other) in others {
        output::status_line(&format!("{file}: skipped {}", other.noun()));
    }
    Ok(used)
}

/// Reads the plugins of a file. Documents of other kinds are skipped, if there is a plugin.
pub(crate) fn plugins(path: &Path, vars: &DocumentVars) -> Result<Vec<PluginDoc>> {
    let source = DocumentSource::read(path)?;
    let (mut plugins, mut others) = (Vec::new(), Vec::new());
    for document in source.documents(vars)? {
        match document {
            Document::Plugin(plugin) => plugins.push(plugin),
            other => others.push((source.name.clone(), other)),
        }
    }
    used(&others, plugins, "a plugin")
}

pub(crate) fn all_plugins(paths: &[PathBuf], vars: &DocumentVars) -> Result<Vec<PluginDoc>> {
    let all: Vec<Vec<PluginDoc>> = paths.iter().map(|path| plugins(path, vars)).collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Reads the targets of files and folders. Documents of other kinds are skipped, if there is a target.
pub(crate) fn targets(paths: &[PathBuf], vars: &DocumentVars) -> Result<Vec<SandboxDoc>> {
    let (mut all, mut skipped) = (Vec::new(), Vec::new());
    for file in files(paths)? {
        let source = DocumentSource::read(&file)?;
        let (others, targets) = divided(source.documents(vars)?);
        skipped.extend(others.into_iter().map(|other| (source.name.clone(), other)));
        all.extend(targets);
    }
    used(&skipped, all, "a sandbox")
}

/// Reads a file that contains one target, otherwise like [`targets`].
pub(crate) fn single_target(path: &Path, vars: &DocumentVars) -> Result<SandboxDoc> {
    let mut targets = targets(&[path.to_owned()], vars)?;
    let (name, count) = (path.display(), targets.len());
    let several = || CliError::failed(format!("{name} contains {count} targets; expected one sandbox"));
    targets.pop().filter(|_| count == 1).ok_or_else(several)
}

/// Returns the target of a document. `kind` is the kind of a sandbox; other documents have their own.
pub(crate) fn target_of(document: &SandboxDoc, kind: &str) -> TargetRef {
    let own = document.target_kind.as_ref().map(|own| own.value.as_str());
    TargetRef { kind: own.unwrap_or(kind).to_owned(), name: document.name.value.clone() }
}
