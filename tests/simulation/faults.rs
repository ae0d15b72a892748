//! The kinds of faults, and the injector that decides where they happen.
//!
//! Each kind has its own stream of random numbers, so leaving one kind out does not move the others.

use std::sync::LazyLock;

use super::*;

/// The kinds. `faults.yaml` describes each, and has its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ValueEnum)]
pub enum FaultKind {
    DeathBeforeWrite,
    DeathAfterWrite,
    DeathBeforeRead,
    DeathBeforeCall,
    DeathAfterCall,
    WriteFails,
    WriteAnswerLost,
    WrittenTwice,
    ReadFails,
    SlowOperation,
    IndexLags,
    SweepMissed,
    MessageLost,
    MessageDuplicated,
    MessageLate,
    CallbackLost,
    CallbackAnswerLost,
    CallbackDuplicated,
    CallbackLate,
    CallbackForgotten,
    EventLost,
    EventAnswerLost,
    EventDuplicated,
    EventLate,
    RelayAway,
    RelayAwayLong,
    RelayAnswerLost,
    RelayRequestDuplicated,
    PolicyStrict,
    PodLost,
    RequestLost,
    ResponseLost,
    ServerBusy,
    AttemptFails,
    AttemptHangs,
    SetupBroken,
    UndoBroken,
    PlatformRefuses,
    PlatformAway,
    PlatformHangs,
    PlatformAnswerLost,
    ColdStart,
    ClockOff,
    ResultsFlooded,
    GatewayGivesUp,
    EventBinary,
    ClusterUnreachable,
    SlotsScarce,
    DispatchesScarce,
    ReceiverAway,
    CreationFails,
    CreationHangs,
    ListedLate,
    KeyIgnored,
    ProviderConflicts,
    ProviderLocked,
    DeletionLate,
    DeletionHangs,
    ThingHidden,
    ForeignToken,
    InstanceListedLate,
    PluginEmpty,
    HeartbeatsSent,
    RunRead,
    RelayForgets,
    PlaceUnlisted,
    ClusterReplaced,
    FeedWatched,
    RelayRefuses,
    ErrorReported,
    ErrorAfterChange,
    FailsAfterChange,
    IdMissing,
    ListPaged,
    RequestsLimited,
    ThingHasParts,
    TokenExpires,
    TokenRevoked,
    ConnectionCapped,
    DigestChallenged,
    NonceStale,
    RequestsSigned,
    FoundLate,
    ClosingLost,
    ListAway,
    ListCut,
    ListForeign,
    ListLimited,
}

/// An attribute of a kind of fault. `faults.yaml` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FaultAttribute {
    Harmless,
    Interrupting,
    Delaying,
    Steady,
}

/// A row of `faults.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultRow {
    kind: FaultKind,
    weight: u64,
    #[serde(default)]
    is: Vec<FaultAttribute>,
}

static ROWS: LazyLock<Vec<FaultRow>> = LazyLock::new(|| {
    let rows: Vec<FaultRow> = serde_saphyr::from_str(include_str!("faults.yaml")).expect("the rows are readable");
    assert!(rows.iter().map(|row| &row.kind).eq(FaultKind::all()), "the rows have the order of the kinds");
    rows
});

impl FaultKind {
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    pub fn that_are(attribute: FaultAttribute) -> Vec<Self> {
        ROWS.iter().filter(|row| row.is.contains(&attribute)).map(|row| row.kind).collect()
    }
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
        Self((0..).zip(FaultKind::all()).map(stream).collect())
    }

    /// Returns the faults of the simulation of `seed`: each kind that is not steady happens never, seldom or often in it.
    pub fn new(seed: u64, excluded: &[FaultKind]) -> Self {
        let calm = SimRandom::new(seed ^ 0xca1f).below(20) == 0;
        Self::with_rates(seed, |kind, random| match random.below(8) {
            _ if excluded.contains(&kind) => 0,
            _ if ROWS[kind as usize].is.contains(&FaultAttribute::Steady) => ROWS[kind as usize].weight,
            _ if calm => 0,
            0..=3 => 0,
            4..=6 => ROWS[kind as usize].weight.div_ceil(4),
            _ => ROWS[kind as usize].weight,
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

    /// Returns the number of injection points of each kind, in the order of [`FaultKind::all`].
    pub fn injection_points(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injection_points.load(Ordering::Relaxed)).collect()
    }

    /// Returns the number of faults of each kind, in the order of [`FaultKind::all`].
    pub fn injected(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.injected.load(Ordering::Relaxed)).collect()
    }
}
