//! The codes of errors of the API, with their statuses and meanings, and refused requests.

/// Declares the codes: `VARIANT = "CODE" STATUS: "MEANING"`. The first status is the usual one.
macro_rules! error_codes {
    ($($variant:ident = $name:literal $status:literal $(or $other:literal)*: $meaning:literal,)+) => {
        /// A code of an error of the API. It is stable, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode {
            $($variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the code as responses have it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the statuses of responses with this code, the usual one first.
            pub fn statuses(self) -> &'static [u16] {
                match self {
                    $(Self::$variant => &[$status $(, $other)*],)+
                }
            }

            /// Returns the meaning of the code, for the documentation.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }
        }
    };
}

error_codes! {
    MissingToken = "missing-token" 401: "the request has no bearer token",
    InvalidToken = "invalid-token" 401 or 403: "the token is unknown; 403 at `/v1/callbacks`",
    TokenExpired = "token-expired" 401 or 403: "the API token has expired; 403 for the token of an attempt",
    TokenRevoked = "token-revoked" 401: "the API token was revoked",
    Forbidden = "forbidden" 403: "the token lacks a scope, or its scopes do not cover the target",
    ForeignForm = "foreign-form" 403: "the form is not of a page of this session; pages of the console only",
    InvalidSignature = "invalid-signature" 401: "the signature is missing, wrong or too old",
    InvalidEvent = "invalid-event" 400 or 415 or 422: "not a lifecycle webhook",
    InvalidDocument = "invalid-document" 422: "the document has errors",
    NotRepairable = "not-repairable" 422: "the version of the plugin does not fit the teardown of the target",
    PluginUnused = "plugin-unused" 422: "no resource of the target uses the plugin",
    MissingField = "missing-field" 422: "the request lacks a field, such as a reason",
    InvalidField = "invalid-field" 422: "a field has an invalid value, such as the name of a target",
    InvalidCallback = "invalid-callback" 400: "not a callback",
    InvalidPoll = "invalid-poll" 400: "not a poll of a relay",
    InvalidJson = "invalid-json" 400: "the body is not the expected JSON",
    IncompleteBody = "incomplete-body" 400: "the body is incomplete",
    InvalidQuery = "invalid-query" 400: "a query parameter is wrong, repeated or unknown",
    InvalidHeader = "invalid-header" 400 or 415: "a header is wrong, such as `Idempotency-Key`",
    InvalidPath = "invalid-path" 400: "a name in the path cannot be read",
    InvalidRunId = "invalid-run-id" 400: "not the id of a run",
    InvalidNextToken = "invalid-next-token" 400: "not the `nextToken` of a page",
    NotFound = "not-found" 404: "the object or the path does not exist",
    UnknownVersion = "unknown-version" 404: "the version of the plugin is not published",
    EventRejected = "event-rejected" 404: "the target does not exist, and an event of a source for it was rejected",
    MethodNotAllowed = "method-not-allowed" 405: "the path does not accept this method",
    RequestTimeout = "request-timeout" 408: "the body did not arrive in time",
    AlreadyExists = "already-exists" 409: "the version is published with another document, or the name has a valid token",
    Outdated = "outdated" 409: "the document differs from that of the target or of its waiting update, and the generation is not higher. Or the target has another `generation` or `uid` than that of the request",
    FixedField = "fixed-field" 409: "the update would change the cluster or the namespace of a living target",
    ResourceLost = "resource-lost" 409: "the update would remove or replace complete resources, and the request has `allowReplace: false`",
    Protected = "protected" 409: "the request would remove, replace or delete a resource with `protect: true`, or end its protection without `protect: false`",
    PlanTooLarge = "plan-too-large" 409: "the target has too many units of earlier updates",
    Stale = "stale" 409: "the instance has ended, or was deleted before it was created, or that of an event waits for its name",
    NameTaken = "name-taken" 409: "another instance waits for the name",
    OtherOwner = "other-owner" 409: "the instance belongs to a source, or to the platform; only its creator changes it, and a person can delete it. Or the name has a target that the scopes do not cover",
    Failed = "failed" 409: "the target of the event has failed",
    NothingFailed = "nothing-failed" 409: "no unit has failed, or waits for a time that can be shortened",
    NotRendered = "not-rendered" 409: "the unit waits for others, cannot be rendered, or its rendered form is too large for a response",
    NotStuck = "not-stuck" 409: "an override needs a stuck target or a failed unit, and a repair a stuck target",
    LateResult = "late-result" 409: "the attempt was given up; a success is recorded and undone",
    TooManyResults = "too-many-results" 409: "the attempt has reported 16 different results, or its unit 16 late ones; this one is not undone",
    WrongCluster = "wrong-cluster" 409: "the relay of another cluster than the pinned one, or than that of an entry of the configuration",
    ClusterChanged = "cluster-changed" 409: "the registration does not have the `expected` version any more",
    ClusterInUse = "cluster-in-use" 409: "targets have units in the cluster",
    DocumentInUse = "document-in-use" 409: "living targets, sources or subscriptions need the document; `force` makes the change",
    TooManyClusters = "too-many-clusters" 409: "100 clusters are registered",
    TooManyTargets = "too-many-targets" 409: "as many targets of the caller live as the deployment permits",
    OwnRelay = "own-relay" 409: "the control plane has a relay of its own, and registers no clusters",
    WrongTransport = "wrong-transport" 409: "a poll of a cluster whose relay is called by the control plane",
    Gone = "gone" 410: "the run does not exist any more, or the attempt has ended",
    TooLarge = "too-large" 413: "the body is too large",
    Internal = "internal" 500: "the request failed; the log has the cause",
    Damaged = "damaged" 500: "stored data is lost or damaged; `detail` has the repair",
    Unavailable = "unavailable" 503: "the state cannot be read or written now: send the same request again",
    Busy = "busy" 503: "too many requests are being received: send the same request again",
    RelayUnavailable = "relay-unavailable" 503: "the relay of a running script does not return its log; `detail` has the cluster and the start of the outage",
    IssuerUnavailable = "issuer-unavailable" 503: "the keys of the issuer of an identity token cannot be fetched: send the same request again",
    MissingSecret = "missing-secret" 503: "the deployment has no secret of the name that the source gives",
    InvalidSecrets = "invalid-secrets" 503: "the named secrets of the deployment are invalid or cannot be read",
    IncompleteEvent = "incomplete-event" 503: "the request that completes the event of a source has failed: send the event again",
    Misconfigured = "misconfigured" 503: "the configuration of the function is invalid; its log has the cause",
}

impl ErrorCode {
    /// Returns the code of a response, or `None` for one of a later version.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// Returns the next step of a caller, for the codes whose text has none.
    pub fn next_step(self) -> Option<&'static str> {
        Some(match self {
            Self::MissingToken => "run `ebb login`, or set EBB_TOKEN",
            Self::InvalidToken | Self::TokenExpired | Self::TokenRevoked => {
                "run `ebb login`, or set EBB_TOKEN to a valid token; a person with the scope `operate` creates one: ebb token create NAME --scope SCOPE"
            }
            Self::Forbidden => {
                "ask a person with the scope `operate` for a token with that scope: ebb token create NAME --scope SCOPE"
            }
            Self::InvalidSignature => {
                "compare the secret with that of the server: EBB_WEBHOOK_SECRET for `ebb event`, `secrets.json` for `ebb source \
                 send`"
            }
            Self::ResourceLost => "ask whether that may be lost, and allow it: --allow-replace, or --yes of an upgrade",
            Self::AlreadyExists => "write another version into the document, or use another name",
            _ => return None,
        })
    }
}
