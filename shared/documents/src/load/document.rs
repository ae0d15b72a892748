//! Documents of all kinds.

use std::sync::Arc;

use crate::model::{At, ConnectionDoc, PluginDoc, RouteGroupDoc, SandboxDoc, SourceDoc, SourceText, SubscriptionDoc};

/// A document of any kind. The kind follows from the keys of the document or from its `kind`.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    Plugin(PluginDoc),
    Sandbox(SandboxDoc),
    RouteGroup(RouteGroupDoc),
    Source(SourceDoc),
    Connection(ConnectionDoc),
    Subscription(SubscriptionDoc),
}

impl Document {
    /// Returns the kind in words, the name, the source, and the document as YAML with all `@{…}` expanded.
    pub(super) fn parts(&self) -> (&'static str, &At<String>, &Arc<SourceText>, &str) {
        match self {
            Self::Plugin(plugin) => ("a plugin", &plugin.name, &plugin.source, &plugin.expanded),
            Self::Sandbox(sandbox) => ("a sandbox", &sandbox.name, &sandbox.source, &sandbox.expanded),
            Self::RouteGroup(RouteGroupDoc { target, .. }) => {
                ("a route group", &target.name, &target.source, &target.expanded)
            }
            Self::Source(source) => ("a source", &source.name, &source.source, &source.expanded),
            Self::Connection(connection) => {
                ("a connection", &connection.name, &connection.source, &connection.expanded)
            }
            Self::Subscription(one) => ("a subscription", &one.name, &one.source, &one.expanded),
        }
    }

    pub fn noun(&self) -> &'static str {
        self.parts().0
    }

    /// Returns the name. That of a plugin has no version.
    pub fn name(&self) -> &str {
        &self.parts().1.value
    }

    pub fn source(&self) -> &Arc<SourceText> {
        self.parts().2
    }

    /// Returns the document as YAML with all `@{…}` expanded.
    pub fn expanded(&self) -> &str {
        self.parts().3
    }
}
