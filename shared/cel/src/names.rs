//! The names of expressions.

/// A root variable of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootVariable {
    Params,
    /// The resource before an update: `old.params`.
    Old,
    Units,
    Resources,
    Target,
    /// The resource whose plugin is compiled.
    Resource,
    /// The inputs of the unit to which the expression belongs.
    Inputs,
    Response,
    /// The last answer while a webhook unit waits for a state.
    Poll,
    /// The current state of a Kubernetes object.
    Object,
    Objects,
    /// The resource of an InfraKit plugin.
    Instance,
    /// The headers of a third party's event, by their name in lower case.
    Headers,
    /// The JSON body of a third party's event.
    Body,
    /// The source that received an event.
    Source,
    /// The claims of an identity token.
    Claims,
    /// The response to the request by which a source completes an event.
    Fetched,
    /// The change of a target that a subscription reports.
    Notification,
}

impl RootVariable {
    pub const ALL: [Self; 18] = [
        Self::Params,
        Self::Old,
        Self::Units,
        Self::Resources,
        Self::Target,
        Self::Resource,
        Self::Inputs,
        Self::Response,
        Self::Poll,
        Self::Object,
        Self::Objects,
        Self::Instance,
        Self::Headers,
        Self::Body,
        Self::Source,
        Self::Claims,
        Self::Fetched,
        Self::Notification,
    ];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::Old => "old",
            Self::Units => "units",
            Self::Resources => "resources",
            Self::Target => "target",
            Self::Resource => "resource",
            Self::Inputs => "inputs",
            Self::Response => "response",
            Self::Poll => "poll",
            Self::Object => "object",
            Self::Objects => "objects",
            Self::Instance => "instance",
            Self::Headers => "headers",
            Self::Body => "body",
            Self::Source => "source",
            Self::Claims => "claims",
            Self::Fetched => "fetched",
            Self::Notification => "notification",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.as_str() == name)
    }
}

/// The place of an expression, which determines its root variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A unit or a public output of a plugin.
    Plugin,
    /// A unit of `update` of a plugin.
    Update,
    /// A unit of a target's own hooks.
    Own,
    Sandbox,
    /// An output of a webhook of a plugin, or a part of its `until`.
    Response,
    /// The same in a target's own hooks.
    OwnResponse,
    /// The rule `ready` or `fail` of an object.
    Object,
    Objects,
    /// An output of an InfraKit unit.
    Instance,
    /// An event that a source receives.
    Event,
    /// A target document in a source: values of the event, or values of the target.
    EventDocument,
    /// A rule for the identity tokens of an issuer.
    Identity,
    /// An event that a source completes.
    FetchedEvent,
    /// A target document in a source that completes its events.
    FetchedEventDocument,
    /// The condition of a subscription.
    Subscription,
    /// A request of a subscription.
    Notification,
    /// A plan, whose expressions were checked before.
    Plan,
}

impl Scope {
    pub fn roots(self) -> &'static [RootVariable] {
        match self {
            Self::Plugin => &[RootVariable::Params, RootVariable::Units, RootVariable::Target, RootVariable::Resource],
            Self::Update => &[
                RootVariable::Params,
                RootVariable::Old,
                RootVariable::Units,
                RootVariable::Target,
                RootVariable::Resource,
            ],
            Self::Own => &[RootVariable::Units, RootVariable::Resources, RootVariable::Target],
            Self::Sandbox => &[RootVariable::Resources, RootVariable::Target],
            Self::Response => &[
                RootVariable::Response,
                RootVariable::Poll,
                RootVariable::Params,
                RootVariable::Inputs,
                RootVariable::Units,
                RootVariable::Target,
                RootVariable::Resource,
            ],
            Self::OwnResponse => &[
                RootVariable::Response,
                RootVariable::Poll,
                RootVariable::Inputs,
                RootVariable::Units,
                RootVariable::Resources,
                RootVariable::Target,
            ],
            Self::Object => &[RootVariable::Object],
            Self::Objects => &[RootVariable::Object, RootVariable::Objects],
            Self::Instance => &[RootVariable::Instance],
            Self::Event => &[RootVariable::Headers, RootVariable::Body, RootVariable::Source],
            Self::EventDocument => &[
                RootVariable::Headers,
                RootVariable::Body,
                RootVariable::Source,
                RootVariable::Resources,
                RootVariable::Target,
            ],
            Self::Identity => &[RootVariable::Claims],
            Self::FetchedEvent => {
                &[RootVariable::Headers, RootVariable::Body, RootVariable::Source, RootVariable::Fetched]
            }
            Self::FetchedEventDocument => &[
                RootVariable::Headers,
                RootVariable::Body,
                RootVariable::Source,
                RootVariable::Fetched,
                RootVariable::Resources,
                RootVariable::Target,
            ],
            Self::Subscription => &[RootVariable::Target],
            Self::Notification => &[RootVariable::Target, RootVariable::Notification],
            Self::Plan => &RootVariable::ALL,
        }
    }
}

pub const TARGET_FIELDS: [&str; 8] = ["name", "namespace", "kind", "uid", "key", "labels", "cluster", "generation"];

pub const RESOURCE_FIELDS: [&str; 2] = ["name", "key"];

pub(crate) const NOTIFICATION_FIELDS: [&str; 9] =
    ["id", "phase", "time", "run", "unit", "reason", "log", "ended", "link"];

pub(crate) const SOURCE_FIELDS: [&str; 1] = ["name"];

pub(crate) const FETCHED_FIELDS: [&str; 2] = ["status", "body"];
pub(crate) const RESPONSE_FIELDS: [&str; 3] = ["status", "headers", "body"];

/// The fields of an instance, of the result of `Resource.Commit`, and of the object of a controller.
pub(crate) const INSTANCE_FIELDS: [&str; 11] =
    ["ID", "LogicalID", "Tags", "Properties", "Details", "IDs", "kind", "metadata", "properties", "options", "state"];

/// Functions of expressions, in addition to `has`, `all`, `exists`, `exists_one`, `map` and `filter`. CEL's `format` is
/// omitted, because its precision can produce a text of any length.
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

/// Names of types, as in `type(x) == string`.
pub(crate) const TYPES: [&str; 12] =
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"];
