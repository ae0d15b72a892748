//! What a round has come to, and what of it does not hold.

use std::fmt;
use std::time::Duration;

use ebb_store::Figures as Table;

use crate::documents::UNITS;
use crate::way::{Chances, Passed};

/// One round.
pub(crate) struct Figures {
    pub(crate) runs: usize,
    pub(crate) chances: Chances,
    pub(crate) took: Duration,
    /// What the functions have asked the table, with what it has reported.
    pub(crate) table: Table,
    pub(crate) passed: Passed,
    /// Requests to units' servers.
    pub(crate) webhooks: u64,
    /// Calls of the functions that gave an error and came again.
    pub(crate) repeated: u64,
    /// Messages that could not be dealt with, and sweeps that failed. They are hints, and come again.
    pub(crate) dropped: usize,
    /// Runs that ended as they should, in the table.
    pub(crate) ended: usize,
    /// What is not as it should be, one line each.
    pub(crate) wrong: Vec<String>,
}

/// Lines of what is wrong that are shown.
const SHOWN: usize = 20;
/// Per unit of a round without faults: an accepted 202 is one request, a completion with outputs two, a run fifteen and a few
/// looks at what others have done meanwhile.
const MOST_REQUESTS: f64 = 4.0;
/// Per unit of such a round, as the table reports them: the same without the reads, and the items of a run that have two or
/// are in an index.
const MOST_WRITE_UNITS: f64 = 4.1;

impl Figures {
    fn units(&self) -> f64 {
        (self.runs * UNITS) as f64
    }

    fn requests(&self) -> u64 {
        self.table.requests.values().sum()
    }

    fn lost(&self) -> usize {
        self.runs - self.ended
    }

    /// What does not hold.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken: Vec<String> = self.wrong.iter().take(SHOWN).cloned().collect();
        if self.wrong.len() > SHOWN {
            broken.push(format!("and {} more", self.wrong.len() - SHOWN));
        }
        if self.lost() > 0 {
            broken.push(format!("{} runs are lost", self.lost()));
        }
        let completions = (self.runs * UNITS) as u64;
        if self.passed.completions < completions {
            broken.push(format!("{} completions for {completions} units", self.passed.completions));
        }
        let either = self.chances.failing + self.chances.lost;
        for (what, chance, hits) in [
            ("call has failed", self.chances.failing, self.passed.failed),
            ("reply was lost", self.chances.lost, self.passed.lost),
            ("call has failed for good", either, self.passed.for_good),
            ("call of a function has come again", either, self.repeated),
        ] {
            if chance > 0.0 && hits == 0 {
                broken.push(format!("no {what}"));
            }
        }
        if self.chances == Chances::NONE {
            let units = self.units();
            for (what, is, most) in [
                ("requests", self.requests() as f64 / units, MOST_REQUESTS),
                ("write units", self.table.write_units / units, MOST_WRITE_UNITS),
            ] {
                if is > most {
                    broken.push(format!("{is:.2} {what} per unit, and {most:.2} are the most"));
                }
            }
            if self.passed.transactions != self.runs as u64 {
                let (is, runs) = (self.passed.transactions, self.runs);
                broken.push(format!(
                    "{is} transactions with heads of {runs} runs: each is in one, which begins it"
                ));
            }
            for (what, is) in [
                ("hints were dropped", self.dropped as u64),
                ("completions met a transaction", self.passed.conflicts),
                ("completions were refused", self.passed.refused),
                ("completions were sent again", self.passed.again),
                ("calls came again", self.repeated),
                ("requests to units' servers are repetitions", self.webhooks.saturating_sub(completions)),
            ] {
                if is > 0 {
                    broken.push(format!("{is} {what}"));
                }
            }
        }
        broken
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, passed, table) = (self.units(), &self.passed, &self.table);
        let seconds = self.took.as_secs_f64();
        writeln!(f, "  runs               {} of {UNITS} units, in {seconds:.1} s", self.runs)?;
        writeln!(f, "  ended right        {}", self.ended)?;
        writeln!(f, "  lost               {}", self.lost())?;
        writeln!(
            f,
            "  requests           {}, {:.2} per unit, {:.0} per second",
            self.requests(),
            self.requests() as f64 / units,
            self.requests() as f64 / seconds
        )?;
        writeln!(
            f,
            "  write units        {}, {:.2} per unit, as the table reports them; {:.2} by our own sizing",
            table.write_units,
            table.write_units / units,
            table.sized_write_units as f64 / units
        )?;
        writeln!(f, "  read units         {}, {:.2} per unit", table.read_units, table.read_units / units)?;
        writeln!(
            f,
            "  completions        {}: {} met a transaction, {} were refused, {} were sent again for it",
            passed.completions, passed.conflicts, passed.refused, passed.again
        )?;
        let (with_heads, cancelled) = (passed.transactions, passed.cancelled);
        writeln!(f, "  transactions       {with_heads} with the head of a run, {cancelled} cancelled")?;
        writeln!(
            f,
            "  faults             {} calls failed, {} replies lost; {} of these calls for good",
            passed.failed, passed.lost, passed.for_good
        )?;
        writeln!(f, "  came again         {} calls; {} hints dropped", self.repeated, self.dropped)?;
        writeln!(f, "  units' servers     {} requests", self.webhooks)
    }
}
