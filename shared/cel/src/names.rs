//! The names of expressions.

macro_rules! root_variables {
    ($($(#[$doc:meta])* $variant:ident: $name:literal $(with $fields:literal)?,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RootVariable {
            $($(#[$doc])* $variant,)+
        }

        impl RootVariable {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the fields of a variable that has no others, separated by blanks. The names below other variables
            /// come from documents, objects and events.
            pub(crate) fn fields(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("" $(, $fields)?),)+
                }
            }
        }
    };
}

root_variables! {
    Params: "params",
    /// The resource before an update: `old.params`.
    Old: "old" with "params",
    Units: "units",
    Resources: "resources",
    Target: "target" with "name namespace kind uid key labels cluster generation",
    /// The resource whose plugin is compiled.
    Resource: "resource" with "name key",
    /// The inputs of the unit to which the expression belongs.
    Inputs: "inputs",
    /// The entry of `forEach` for which the unit exists.
    Item: "item",
    Response: "response" with "status headers body",
    /// The last answer while a webhook unit waits for a state.
    Poll: "poll" with "status headers body",
    /// The current state of a Kubernetes object.
    Object: "object",
    Objects: "objects",
    /// The conditions of an object by their type.
    Conditions: "conditions",
    /// Its conditions of the present generation.
    Current: "current",
    /// The named values of a contract.
    Vars: "vars",
    /// The words of the contracts.
    Words: "words",
    /// The reason of a pending object.
    Why: "why",
    /// The warnings about an object, the newest first.
    Events: "events",
    /// The values that a relay adds to an object.
    Facts: "facts",
    /// The element of a list to which a rule is applied.
    It: "it",
    /// The resource of an InfraKit plugin. The fields are those of an instance, of the result of `Resource.Commit`, and of
    /// the object of a controller.
    Instance: "instance" with "ID LogicalID Tags Properties Details IDs kind metadata properties options state",
    /// The headers of a third party's event, by their name in lower case.
    Headers: "headers",
    /// The JSON body of a third party's event.
    Body: "body",
    /// The source that received an event.
    Source: "source" with "name",
    Claims: "claims",
    /// The values of the params of a source.
    With: "with",
    /// The response to the request by which a source completes an event.
    Fetched: "fetched" with "status body",
    /// The list of a source: `part`, and the number of elements that were `seen` before the page.
    Listing: "listing" with "part seen",
    /// The change of a target that a subscription reports.
    Notification: "notification"
        with "id phase time run unit reason log ended event link owner url env outputs workloads",
}

impl RootVariable {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.as_str() == name)
    }
}

/// The place of an expression, which determines its root variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(serde::Deserialize))]
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
    /// A contract of a kind of objects.
    Contract,
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
    /// The list of what exists at the sender of a source.
    Listing,
    /// The condition of a subscription.
    Subscription,
    /// A request of a subscription.
    Notification,
    /// A plan, whose expressions were checked before.
    Plan,
}

impl Scope {
    pub fn roots(self) -> &'static [RootVariable] {
        use RootVariable::*;
        match self {
            Self::Plugin => &[Params, Units, Target, Resource, Item],
            Self::Update => &[Params, Old, Units, Target, Resource, Item],
            Self::Own => &[Units, Resources, Target],
            Self::Sandbox => &[Units, Resources, Target],
            Self::Response => &[Response, Poll, Params, Inputs, Units, Target, Resource, Item],
            Self::OwnResponse => &[Response, Poll, Inputs, Units, Resources, Target],
            Self::Object => &[Object],
            Self::Objects => &[Object, Objects],
            Self::Contract => &[Object, Conditions, Current, Vars, Words, Why, Events, Facts, It],
            Self::Instance => &[Instance],
            Self::Event => &[Headers, Body, Source, With],
            Self::EventDocument => &[Headers, Body, Source, With, Units, Resources, Target],
            Self::Identity => &[Claims],
            Self::FetchedEvent => &[Headers, Body, Source, With, Fetched],
            Self::FetchedEventDocument => &[Headers, Body, Source, With, Fetched, Units, Resources, Target],
            Self::Listing => &[Response, Item, Target, Listing, Source, With],
            Self::Subscription => &[Target],
            Self::Notification => &[Target, Notification],
            Self::Plan => &RootVariable::ALL,
        }
    }
}

/// Functions of expressions, in addition to `has`, `all`, `exists`, `exists_one`, `map` and `filter`. CEL's `format` is
/// omitted, because its precision can produce a text of any length.
const FUNCTIONS: &str = "\
    base64.decode base64.encode bool bytes charAt contains double duration dyn endsWith getDate getDayOfMonth \
    getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds hasValue indexOf \
    int join json.parse lastIndexOf lowerAscii matches optional.none optional.of optional.ofNonZeroValue or orValue \
    replace reverse secretRef sha256 size split startsWith string substring timestamp trim type uint upperAscii \
    url.encode value";

pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.split(' ')
}

pub(crate) fn is_function(name: &str) -> bool {
    functions().any(|function| function == name)
}

/// Names of types, as in `type(x) == string`.
pub(crate) const TYPES: [&str; 12] =
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"];
