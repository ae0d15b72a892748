//! Heartbeats of the health check: `check` / mark, with the time `at`.

use ebb_protocol::engine::Timestamp;

use super::{Store, item_at, key, number};
use crate::ops::{HealthMark, StoreResult};

const AT: &str = "at";

fn sort(what: HealthMark) -> &'static str {
    match what {
        HealthMark::Table => key::HEAD,
        HealthMark::Queue => "queue",
        HealthMark::Schedule => "schedule",
    }
}

/// Heartbeats of the health check (`PutItem`, `GetItem`).
impl Store {
    pub async fn put_mark(&self, what: HealthMark, now: Timestamp) -> StoreResult<()> {
        self.table.put(item_at((key::CHECK, sort(what)), [(AT, number(now.0))])).await
    }

    pub async fn read_mark(&self, what: HealthMark) -> StoreResult<Option<Timestamp>> {
        self.table.read(key::CHECK, sort(what), |reader| reader.time(AT)).await
    }
}
