//! The kinds of faults, and the injector that decides where they happen.
//!
//! Each kind has its own stream of random numbers, so leaving one kind out does not move the others.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;

use super::SimRandom;

macro_rules! faults {
    ($($(#[$doc:meta])* $kind:ident = $weight:literal $(, $harmless:ident)?;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];
            /// Those that must not change the result of a target. Random simulations test the other kinds.
            pub const HARMLESS: &'static [Self] = &[$($(Self::$harmless(Self::$kind),)?)*];

            const fn harmless(self) -> Self {
                self
            }

            /// Returns how often it happens in a simulation in which it happens often: of a thousand injection points.
            fn weight(self) -> u64 {
                match self { $(Self::$kind => $weight,)* }
            }
        }
    };
}

faults! {
    /// The invocation dies before a write of the table or the bucket.
    DeathBeforeWrite = 40, harmless;
    DeathAfterWrite = 40, harmless;
    DeathBeforeRead = 20, harmless;
    /// The invocation dies before a request to a relay, a server, the platform or the queue.
    DeathBeforeCall = 60, harmless;
    /// The invocation dies after such a request has arrived.
    DeathAfterCall = 60, harmless;
    /// A write fails and can be repeated.
    WriteFails = 40, harmless;
    /// A write is made, and its response is lost.
    WriteAnswerLost = 40, harmless;
    /// A write is made, its response is lost, and the client repeats it.
    WrittenTwice = 60, harmless;
    /// A read fails and can be repeated.
    ReadFails = 20, harmless;
    /// An operation of the table takes up to ten seconds.
    SlowOperation = 25;
    /// The index of due items is as it was at the query before.
    IndexLags = 500;
    /// The schedule leaves out a sweep.
    SweepMissed = 400;
    /// A message of the queue is never delivered.
    MessageLost = 300, harmless;
    MessageDuplicated = 300, harmless;
    /// A message is delivered up to ten minutes late.
    MessageLate = 200, harmless;
    /// A callback does not arrive; it is sent again.
    CallbackLost = 200, harmless;
    /// The response to a callback is lost; the callback is sent again.
    CallbackAnswerLost = 200, harmless;
    /// A callback is sent once more, up to ten minutes later.
    CallbackDuplicated = 200, harmless;
    /// A callback is first sent up to two minutes late.
    CallbackLate = 100, harmless;
    /// The server of a webhook unit never calls back.
    CallbackForgotten = 60;
    /// A lifecycle webhook does not arrive; it is sent again.
    EventLost = 200, harmless;
    /// The response to a lifecycle webhook is lost; the webhook is sent again.
    EventAnswerLost = 200, harmless;
    /// A lifecycle webhook is sent once more, up to five minutes later.
    EventDuplicated = 300, harmless;
    /// A lifecycle webhook is first sent up to half a minute late, so that events overtake each other.
    EventLate = 200;
    /// A relay is unreachable for one request.
    RelayAway = 150, harmless;
    /// A relay is unreachable for up to five minutes.
    RelayAwayLong = 15;
    /// The response of a relay is lost.
    RelayAnswerLost = 100, harmless;
    /// A request to start work reaches the relay once more, up to 20 seconds later.
    RelayRequestDuplicated = 100, harmless;
    /// A relay reports a policy that refuses every object.
    PolicyStrict = 700;
    /// The pod of a unit vanishes.
    PodLost = 60;
    /// A request to a webhook unit's server does not arrive.
    RequestLost = 80;
    /// The response of the server is lost.
    ResponseLost = 60;
    /// The server responds that it is busy, and for how long.
    ServerBusy = 80;
    /// An attempt of a unit fails.
    AttemptFails = 150;
    /// An attempt of a unit never ends.
    AttemptHangs = 25;
    /// A setup unit fails until an operator repairs it.
    SetupBroken = 30;
    /// A teardown unit fails until an operator repairs it.
    UndoBroken = 30;
    /// The platform refuses a notification once.
    PlatformRefuses = 200, harmless;
    /// The platform refuses everything for up to five minutes.
    PlatformAway = 40;
    /// The platform does not respond, and gets no notification.
    PlatformHangs = 40;
    /// The response of the platform to a notification is lost.
    PlatformAnswerLost = 150, harmless;
    /// An invocation runs in a function instance with an empty cache.
    ColdStart = 1000;
    /// The clock of a function instance is up to a minute off.
    ClockOff = 500;
    /// The server of a webhook unit reports many different results of one attempt.
    ResultsFlooded = 60;
    /// A gateway responds instead of the server behind it, which continues.
    GatewayGivesUp = 80;
    /// A lifecycle webhook is captured and sent in binary mode, as an event of another type.
    EventBinary = 200;
    /// Targets wait for a cluster that is unreachable until all others are gone. One injection point per simulation.
    ClusterUnreachable = 1000;
    /// The cluster has few slots. One injection point per simulation.
    SlotsScarce = 1000;
    /// An invocation dispatches few units. One injection point per simulation.
    DispatchesScarce = 1000;
    /// The receiver of a subscription refuses everything for up to 20 minutes.
    ReceiverAway = 40;
    /// A provider fails to create a thing, until an operator repairs it.
    CreationFails = 100;
    /// A provider does not end the creation of a thing, until an operator repairs it.
    CreationHangs = 60;
    /// The list of a provider shows a new thing up to a minute late.
    ListedLate = 400;
    /// A provider ignores the idempotency key of a request, and creates another thing.
    KeyIgnored = 1000;
    /// A provider refuses a change because of another one (409), and makes nothing.
    ProviderConflicts = 80;
    /// A provider refuses a change because it is locked (423), and makes nothing.
    ProviderLocked = 80;
    /// A provider deletes a thing up to 20 minutes after it has accepted that.
    DeletionLate = 200;
    /// A provider accepts the deletion of a thing, which stays until an operator repairs it.
    DeletionHangs = 80;
    /// A provider answers 404 for a thing for up to four minutes, as to a credential without the right to see it.
    ThingHidden = 100;
    /// The token of a provider is that of another project for up to seven minutes. Nothing is found, and nothing is made.
    ForeignToken = 40;
    /// A plugin of InfraKit lists a new instance late, within the processing time of its unit.
    InstanceListedLate = 400;
    /// A plugin of InfraKit has no access to its instances for up to five minutes, as with another region. It lists nothing.
    PluginEmpty = 30;
    /// The relay sends heartbeats of a script: at any time, twice, and after its end. Lost ones are not repeated.
    HeartbeatsSent = 300, harmless;
    /// A person reads a run, up to a minute after an attempt of it began.
    RunRead = 200, harmless;
    /// A relay loses its records of bound objects before it removes them.
    RelayForgets = 1000;
    /// A relay has no right to list the objects whose records it has lost.
    PlaceUnlisted = 200;
    /// Two clusters have each name in turn. One injection point per simulation.
    ClusterReplaced = 150;
    /// A reader follows the feed of changed targets. One injection point per simulation.
    FeedWatched = 1000, harmless;
    /// The policy of a relay refuses a request to start work that the relay does not know yet.
    RelayRefuses = 80;
    /// A provider answers a change over a connection with an error and the status 200, and makes nothing.
    ErrorReported = 80;
    /// The same, and the provider has made the change.
    ErrorAfterChange = 80;
    /// A provider answers 500 to a change that it has made.
    FailsAfterChange = 80;
    /// The answer to a creation lacks the id.
    IdMissing = 60;
    /// A list of a provider has two pages, the first one with things of others only.
    ListPaged = 500;
    /// A provider limits the requests for up to a minute.
    RequestsLimited = 60;
    /// A thing has parts that must be deleted before it.
    ThingHasParts = 700;
    /// The connection to the provider gets access tokens of a few minutes. One injection point per simulation.
    TokenExpires = 1000;
    /// A provider revokes the access token of a request.
    TokenRevoked = 80;
    /// The connection to the provider has few slots. One injection point per simulation.
    ConnectionCapped = 1000;
    /// The connection to the provider answers challenges of HTTP Digest. One injection point per simulation.
    DigestChallenged = 1000;
    /// A provider refuses an answer to a challenge, because its nonce is stale.
    NonceStale = 80;
    /// The connection to the provider signs its requests as those of AWS. One injection point per simulation.
    RequestsSigned = 1000;
    /// Requests for a thing that is not in the list yet do not find it.
    FoundLate = 500;
}

/// Writes the name on the command line.
impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("each kind has a name").get_name())
    }
}

/// The most random faults of a kind in one simulation, so that everything can end.
const MAX_INJECTED: u64 = 400;

struct FaultStream {
    random: SimRandom,
    /// Injects at so many of a thousand injection points.
    rate: u64,
    /// Injects at the injection points with these numbers, counted from 1.
    at: BTreeSet<u64>,
    injection_points: AtomicU64,
    injected: AtomicU64,
}

/// Decides which faults happen in one simulation.
pub struct FaultInjector(Vec<FaultStream>);

impl FaultInjector {
    fn with_rates(seed: u64, rate: impl Fn(FaultKind, &SimRandom) -> u64) -> Self {
        let stream = |(number, kind): (u64, &FaultKind)| {
            let random = SimRandom::new(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_97f4_a7c1));
            let (rate, at) = (rate(*kind, &random), BTreeSet::new());
            FaultStream { random, rate, at, injection_points: AtomicU64::new(0), injected: AtomicU64::new(0) }
        };
        Self((0..).zip(FaultKind::ALL).map(stream).collect())
    }

    /// Returns the faults of the simulation of `seed`: each kind happens never, seldom or often in it.
    pub fn new(seed: u64, excluded: &[FaultKind]) -> Self {
        let calm = SimRandom::new(seed ^ 0xca1f).below(20) == 0;
        Self::with_rates(seed, |kind, random| match random.below(8) {
            _ if calm || excluded.contains(&kind) => 0,
            0..=3 => 0,
            4..=6 => kind.weight().div_ceil(4),
            _ => kind.weight(),
        })
    }

    /// Returns an injector without faults, to which faults can be added.
    pub fn none() -> Self {
        Self::often(0, &[])
    }

    /// Injects each kind at so many of a hundred injection points.
    pub fn often(seed: u64, rates: &[(FaultKind, u64)]) -> Self {
        let rate = |kind| rates.iter().find(|(of, _)| *of == kind).map_or(0, |(_, percent)| 10 * *percent);
        Self::with_rates(seed, |kind, _| rate(kind))
    }

    /// Injects `kind` at its injection points with these numbers, counted from 1.
    #[must_use]
    pub fn and_at(mut self, kind: FaultKind, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.0[kind as usize].at.extend(numbers);
        self
    }

    pub fn has(&self, kind: FaultKind) -> bool {
        self.0[kind as usize].rate > 0 || !self.0[kind as usize].at.is_empty()
    }

    pub fn should_inject(&self, kind: FaultKind) -> bool {
        let stream = &self.0[kind as usize];
        let number = stream.injection_points.fetch_add(1, Ordering::Relaxed) + 1;
        let has_ended = stream.injected.load(Ordering::Relaxed) >= MAX_INJECTED;
        let random = stream.rate > 0 && stream.random.below(1000) < stream.rate && !has_ended;
        let hit = random || stream.at.contains(&number);
        if hit {
            stream.injected.fetch_add(1, Ordering::Relaxed);
        }
        hit
    }

    pub fn random_below(&self, kind: FaultKind, bound: u64) -> u64 {
        self.0[kind as usize].random.below(bound)
    }

    /// Returns 0 in half of the cases, so that a repetition arrives at the same time, and a number below `bound` in the
    /// others.
    pub fn zero_or_below(&self, kind: FaultKind, bound: u64) -> u64 {
        match self.random_below(kind, 2) {
            0 => 0,
            _ => self.random_below(kind, bound),
        }
    }

    /// Returns the number of injection points of each kind, in the order of [`FaultKind::ALL`].
    pub fn injection_points(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injection_points.load(Ordering::Relaxed)).collect()
    }

    /// Returns the number of faults of each kind, in the order of [`FaultKind::ALL`].
    pub fn injected(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injected.load(Ordering::Relaxed)).collect()
    }
}
