//! The names that an expression may use.

/// What a name at the beginning of a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootVariable {
    Params,
    Units,
    Resources,
    Target,
    /// The resource whose plugin is compiled.
    Resource,
    Response,
    /// A Kubernetes object as it is now.
    Object,
    Objects,
}

impl RootVariable {
    pub const ALL: [Self; 8] = [
        Self::Params,
        Self::Units,
        Self::Resources,
        Self::Target,
        Self::Resource,
        Self::Response,
        Self::Object,
        Self::Objects,
    ];

    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::Units => "units",
            Self::Resources => "resources",
            Self::Target => "target",
            Self::Resource => "resource",
            Self::Response => "response",
            Self::Object => "object",
            Self::Objects => "objects",
        }
    }

    /// The root with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.as_str() == name)
    }
}

/// Where an expression stands, and so what it may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In a unit, or in a plugin's public output.
    Plugin,
    Sandbox,
    /// In an output of a webhook.
    Response,
    /// In `ready` or `fail` of an object.
    Object,
    Objects,
    /// Anywhere: in a plan, which was checked before.
    Plan,
}

impl Scope {
    /// What can be named here.
    pub fn roots(self) -> &'static [RootVariable] {
        match self {
            Self::Plugin => &[RootVariable::Params, RootVariable::Units, RootVariable::Target, RootVariable::Resource],
            Self::Sandbox => &[RootVariable::Resources, RootVariable::Target],
            Self::Response => &[RootVariable::Response],
            Self::Object => &[RootVariable::Object],
            Self::Objects => &[RootVariable::Object, RootVariable::Objects],
            Self::Plan => &RootVariable::ALL,
        }
    }
}

/// What can follow `target.`.
pub const TARGET_FIELDS: [&str; 8] = ["name", "namespace", "kind", "uid", "key", "labels", "cluster", "generation"];

/// The names that can follow `resource.`.
pub const RESOURCE_FIELDS: [&str; 2] = ["name", "key"];

/// What can follow `response.`.
pub(crate) const RESPONSE_FIELDS: [&str; 3] = ["status", "headers", "body"];

/// The functions of expressions, beside `has`, `all`, `exists`, `exists_one`, `map` and `filter`. CEL's `format` is not
/// among them: a precision in it makes a text of any length.
pub const FUNCTIONS: [&str; 46] = [
    "base64.decode",
    "base64.encode",
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "replace",
    "reverse",
    "secretRef",
    "size",
    "split",
    "startsWith",
    "string",
    "substring",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Names of types, which `type(x) == string` compares with.
pub(crate) const TYPES: [&str; 12] =
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"];
