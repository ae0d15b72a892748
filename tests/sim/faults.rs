//! Everything that may go wrong, each kind with its own stream of chances: leaving one out does not move the others.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SimRandom;

macro_rules! faults {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $weight:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name, for people and for the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// How often it happens where it happens a lot: of a thousand chances.
            fn weight(self) -> u64 {
                match self { $(Self::$kind => $weight,)* }
            }
        }
    };
}

faults! {
    /// The invocation dies before a write of the table or the bucket.
    DeathBeforeWrite = "death-before-write", 40;
    DeathAfterWrite = "death-after-write", 40;
    DeathBeforeRead = "death-before-read", 20;
    /// It dies before a request to a relay, a server, the platform or the queue.
    DeathBeforeCall = "death-before-call", 60;
    /// It dies after such a request has done its work.
    DeathAfterCall = "death-after-call", 60;
    /// A write is refused for the time being.
    WriteFails = "write-fails", 40;
    /// A write is made and its answer is lost.
    WriteAnswerLost = "write-answer-lost", 40;
    /// A write is made, its answer is lost, and the client makes it again.
    WrittenTwice = "written-twice", 60;
    /// A read fails for the time being.
    ReadFails = "read-fails", 20;
    /// An operation of the table takes up to ten seconds.
    SlowOperation = "slow-operation", 25;
    /// The index of what is due is as it was when it was asked before.
    IndexLags = "index-lags", 500;
    /// The schedule leaves out a sweep.
    SweepMissed = "sweep-missed", 400;
    /// A message of the queue is never delivered.
    MessageLost = "message-lost", 300;
    MessageDuplicated = "message-duplicated", 300;
    /// It is delivered up to ten minutes late.
    MessageLate = "message-late", 200;
    /// A callback does not arrive; it is sent again.
    CallbackLost = "callback-lost", 200;
    /// A callback is taken and its sender does not get to know: it is sent again.
    CallbackAnswerLost = "callback-answer-lost", 200;
    /// A callback is sent once more, up to ten minutes later.
    CallbackDuplicated = "callback-duplicated", 200;
    /// A callback is first sent up to two minutes late.
    CallbackLate = "callback-late", 100;
    /// The server of a webhook unit never calls back.
    CallbackForgotten = "callback-forgotten", 60;
    /// A lifecycle webhook does not arrive; it is sent again.
    EventLost = "event-lost", 200;
    /// Its answer does not arrive; it is sent again.
    EventAnswerLost = "event-answer-lost", 200;
    /// It is sent once more, up to five minutes later.
    EventDuplicated = "event-duplicated", 300;
    /// It is first sent up to half a minute late, so that events overtake each other.
    EventLate = "event-late", 200;
    /// A relay is out of reach for one request.
    RelayAway = "relay-away", 150;
    /// A relay is out of reach for up to five minutes.
    RelayAwayLong = "relay-away-long", 15;
    /// A relay does what it is asked, and its answer is lost.
    RelayAnswerLost = "relay-answer-lost", 100;
    /// A request to start work reaches the relay once more, up to 20 seconds later.
    RelayRequestDuplicated = "relay-request-duplicated", 100;
    /// What ran a pod unit vanishes.
    PodLost = "pod-lost", 60;
    /// A request to a webhook unit's server does not arrive.
    RequestLost = "request-lost", 80;
    /// It arrives, and the answer is lost.
    ResponseLost = "response-lost", 60;
    /// The server is busy and says for how long.
    ServerBusy = "server-busy", 80;
    /// An attempt of a unit fails.
    AttemptFails = "attempt-fails", 150;
    /// An attempt of a unit never ends.
    AttemptHangs = "attempt-hangs", 25;
    /// A unit of the setup fails until an operator mends it.
    SetupBroken = "setup-broken", 30;
    /// A unit of the teardown fails until an operator mends it.
    UndoBroken = "undo-broken", 30;
    /// The platform refuses a notification for the time being.
    PlatformRefuses = "platform-refuses", 200;
    /// The platform refuses everything for up to five minutes.
    PlatformAway = "platform-away", 40;
    /// The platform takes a notification, and its answer is lost.
    PlatformAnswerLost = "platform-answer-lost", 150;
    /// An invocation finds nothing in its memory.
    ColdStart = "cold-start", 150;
    /// The server of a webhook unit reports ever other results of one attempt.
    ResultsFlooded = "results-flooded", 60;
    /// A gateway answers a request before the server behind it does, which goes on.
    GatewayGivesUp = "gateway-gives-up", 80;
    /// A lifecycle webhook is captured and sent in binary mode, as an event of another type.
    EventBinary = "event-binary", 200;
    /// Targets wait for a cluster that gives no answer until all others have come to rest. One chance per simulation.
    ClusterUnreachable = "cluster-unreachable", 1000;
    /// The cluster runs few scripts at one time. One chance per simulation.
    SlotsScarce = "slots-scarce", 1000;
    /// An invocation sends few units. One chance per simulation.
    DispatchesScarce = "dispatches-scarce", 1000;
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kinds that a simulation leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedFaults(Vec<FaultKind>);

impl ExcludedFaults {
    /// These kinds.
    pub fn of(kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        Self(kinds.into_iter().collect())
    }

    /// Every kind.
    pub fn all() -> Self {
        Self::of(FaultKind::ALL.iter().copied())
    }

    /// Also this one.
    #[must_use]
    pub fn and(&self, kind: FaultKind) -> Self {
        Self::of(self.0.iter().copied().chain([kind]))
    }

    /// Returns true if `kind` is among them.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.0.contains(&kind)
    }

    /// All of them.
    pub fn kinds(&self) -> &[FaultKind] {
        &self.0
    }
}

struct FaultStream {
    random: SimRandom,
    rate: u64,
    /// It happens at the chance of this number, from 1, and at no other.
    once: Option<u64>,
    injection_points: AtomicU64,
    injected: AtomicU64,
}

/// Decides from a seed which faults happen in one simulation.
pub struct FaultInjector(Vec<FaultStream>);

impl FaultInjector {
    /// Returns the faults of the simulation of `seed`: each kind happens never, seldom or often in it.
    pub fn new(seed: u64, excluded: &ExcludedFaults) -> Self {
        let calm = SimRandom::new(seed ^ 0xca1f).below(20) == 0;
        let stream = |(number, kind): (u64, &FaultKind)| {
            let random = SimRandom::new(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_97f4_a7c1));
            let rate = match random.below(8) {
                _ if calm || excluded.has(*kind) => 0,
                0..=3 => 0,
                4..=6 => kind.weight().div_ceil(4),
                _ => kind.weight(),
            };
            FaultStream { random, rate, once: None, injection_points: AtomicU64::new(0), injected: AtomicU64::new(0) }
        };
        Self((0..).zip(FaultKind::ALL).map(stream).collect())
    }

    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::new(0, &ExcludedFaults::all())
    }

    /// Nothing goes wrong but that `kind` happens once, at the chance of this number, from 1.
    pub fn once(kind: FaultKind, number: u64) -> Self {
        Self::none().and_once(kind, number)
    }

    /// The same, and `kind` happens once as well.
    #[must_use]
    pub fn and_once(mut self, kind: FaultKind, number: u64) -> Self {
        self.0[kind as usize].once = Some(number);
        self
    }

    /// Returns true if it happens now.
    pub fn should_inject(&self, kind: FaultKind) -> bool {
        let stream = &self.0[kind as usize];
        let number = stream.injection_points.fetch_add(1, Ordering::Relaxed) + 1;
        let random = stream.rate > 0 && stream.random.below(1000) < stream.rate;
        let hit = random || stream.once == Some(number);
        if hit {
            stream.injected.fetch_add(1, Ordering::Relaxed);
        }
        hit
    }

    /// A number below `bound` that goes with `kind`.
    pub fn random_below(&self, kind: FaultKind, bound: u64) -> u64 {
        self.0[kind as usize].random.below(bound)
    }

    /// Returns 0 in half of the cases, so that a repetition is taken at the same time, and a number below `bound` in the
    /// others.
    pub fn zero_or_below(&self, kind: FaultKind, bound: u64) -> u64 {
        match self.random_below(kind, 2) {
            0 => 0,
            _ => self.random_below(kind, bound),
        }
    }

    /// How often each kind could have happened.
    pub fn injection_points(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injection_points.load(Ordering::Relaxed)).collect()
    }

    /// How often each kind has happened.
    pub fn injected(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injected.load(Ordering::Relaxed)).collect()
    }
}
