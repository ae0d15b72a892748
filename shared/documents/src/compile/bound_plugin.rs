//! The plugin of a resource.

use crate::model::PluginDoc;

/// The plugin that a resource is bound to.
#[derive(Clone, Copy, Debug)]
pub struct BoundPlugin<'a> {
    pub plugin: &'a PluginDoc,
    pub version: &'a semver::Version,
    /// The digest of the document after embedding: `sha256:…`.
    pub digest: &'a str,
}
