//! From text to documents: `@{…}` expanded, keys, types, names and limits checked, every part with its place.
//!
//! What needs several parts of a document (references, cycles, sensitivity) is checked by compiling, not here.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Plugin, RouteGroup, Sandbox, SourceText};

pub use files::{FileError, Files, Folder, MAX_FILE, NoFiles};
pub use vars::{VarError, Vars};

mod files;
mod vars;
pub(crate) mod yaml;

/// A document of any kind; its shape or its `kind` tells which.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A plugin.
    Plugin(Plugin),
    /// A sandbox.
    Sandbox(Sandbox),
    /// Signadot's route group: a target without resources.
    RouteGroup(RouteGroup),
}

/// The documents of one text, and what looks wrong but is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// In the order of the text.
    pub documents: Vec<Document>,
    /// Warnings only.
    pub warnings: Diagnostics,
}

/// All documents of a text, of any kind.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn documents(
    source_name: &str,
    text: &str,
    _files: &dyn Files,
    _vars: &Vars,
) -> Result<Loaded, Diagnostics> {
    let source = SourceText::new(source_name, text);
    Err(Diagnostic::error("empty", &source, None, "there is no document in it").into())
}

/// The only document of a text, of any kind.
///
/// # Errors
/// Everything that is wrong with it; none or several documents.
pub fn document(
    source_name: &str,
    text: &str,
    files: &dyn Files,
    vars: &Vars,
) -> Result<Document, Diagnostics> {
    let mut loaded = documents(source_name, text, files, vars)?.documents;
    match (loaded.pop(), loaded.len()) {
        (Some(document), 0) => Ok(document),
        (_, more) => Err(Diagnostic::error(
            "several-documents",
            &SourceText::new(source_name, text),
            None,
            format!("one document is wanted, here are {}", more + 1),
        )
        .into()),
    }
}

/// The plugins of a text; `---` separates them.
///
/// # Errors
/// Everything that is wrong with any of them; a document that is no plugin.
pub fn plugins(
    source_name: &str,
    text: &str,
    files: &dyn Files,
    vars: &Vars,
) -> Result<Vec<Plugin>, Diagnostics> {
    let mut plugins = Vec::new();
    for document in documents(source_name, text, files, vars)?.documents {
        if let Document::Plugin(plugin) = document {
            plugins.push(plugin);
        }
    }
    Ok(plugins)
}

/// The sandbox of a text.
///
/// # Errors
/// Everything that is wrong with it; a document that is no sandbox.
pub fn sandbox(
    source_name: &str,
    text: &str,
    files: &dyn Files,
    vars: &Vars,
) -> Result<Sandbox, Diagnostics> {
    match document(source_name, text, files, vars)? {
        Document::Sandbox(sandbox) => Ok(sandbox),
        _ => Err(Diagnostic::error(
            "not-a-sandbox",
            &SourceText::new(source_name, text),
            None,
            "a sandbox is wanted",
        )
        .into()),
    }
}

/// The digest of a plugin: `sha256:` and 64 hexadecimal digits over [`Plugin::expanded`].
pub fn digest(plugin: &Plugin) -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(plugin.expanded.as_bytes());
    let mut text = String::from("sha256:");
    for byte in hash {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
