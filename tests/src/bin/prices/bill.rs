//! What is counted times what it costs.

use comfy_table::{CellAlignment, Table, presets};
use ebb_flow::observe::FIGURES;

use crate::Arguments;
use crate::life::Life;
use crate::list::List;
use crate::stack::Stack;

/// What functions run on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    X86,
    Arm64,
}

impl Machine {
    pub(crate) fn price(self) -> &'static str {
        match self {
            Self::X86 => "lambda-x86",
            Self::Arm64 => "lambda-arm64",
        }
    }
}

/// Where callbacks come in, the parameter `EntryPoint`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryPoint {
    HttpApi,
    FunctionUrl,
}

/// How much of a price a life needs.
struct Line {
    price: &'static str,
    /// The part of Ebb that needs it, as it is added to the price's name.
    of: &'static str,
    amount: f64,
}

/// The requests that remove the items and objects of a life.
const RETENTION: &str = " (retention)";
/// Sent, received, deleted.
const REQUESTS_OF_A_MESSAGE: f64 = 3.0;
/// Minutes of 30 days.
const MINUTES: f64 = 43_200.0;
/// Requests a minute with which Lambda asks a queue that is empty: five at a time, of 20 s each.
const POLLS: f64 = 15.0;
const DAYS: f64 = 30.0;
/// Figures that are told where nothing runs: for how long anything was due.
const IDLE_FIGURES: usize = 1;
const MILLION: f64 = 1e6;

/// What is needed for it.
pub(crate) struct Bill<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) list: &'a List,
    pub(crate) life: &'a Life,
    pub(crate) stack: &'a Stack,
}

impl Bill<'_> {
    /// GB-seconds of so many invocations.
    pub(crate) fn gb_seconds(&self, invocations: f64) -> f64 {
        invocations * self.stack.memory * f64::from(self.arguments.took_ms) / 1000.0
    }

    /// How much of which price a life needs.
    fn lines(&self, machine: Machine, entry: EntryPoint) -> [Line; 12] {
        let life = self.life;
        let removal = &life.removal;
        let invocations = life.invocations() as f64;
        let at_the_entry = match entry {
            EntryPoint::HttpApi => life.webhooks + life.callbacks,
            EntryPoint::FunctionUrl => life.webhooks,
        };
        let log_bytes = life.log_bytes as f64 + at_the_entry as f64 * self.stack.entry_line as f64;
        let line = |price, amount| Line { price, of: "", amount };
        let retention = |price, amount| Line { price, of: RETENTION, amount };
        [
            line("dynamodb-write", life.write_units),
            line("dynamodb-read", life.read_units),
            line("lambda-request", invocations),
            line(machine.price(), self.gb_seconds(invocations)),
            line("http-api", at_the_entry as f64),
            line("sqs", REQUESTS_OF_A_MESSAGE * life.messages as f64),
            line("s3-put", life.puts as f64),
            line("s3-get", life.gets as f64),
            line("logs", log_bytes),
            retention("dynamodb-write", removal.write_units),
            retention("dynamodb-read", removal.read_units),
            retention("s3-put", removal.lists as f64),
        ]
    }

    /// Dollars of a life.
    ///
    /// # Errors
    /// A price is missing.
    pub(crate) fn life(&self, machine: Machine, entry: EntryPoint) -> anyhow::Result<f64> {
        self.lines(machine, entry).into_iter().map(|line| self.list.cost(line.price, line.amount)).sum()
    }

    /// Dollars of a life until it is gone: without the removal of what is stored of it.
    ///
    /// # Errors
    /// A price is missing.
    pub(crate) fn kept_life(&self, machine: Machine, entry: EntryPoint) -> anyhow::Result<f64> {
        let lines = self.lines(machine, entry).into_iter().filter(|line| line.of != RETENTION);
        lines.map(|line| self.list.cost(line.price, line.amount)).sum()
    }

    /// Dollars of 30 days, and those of it which are due even without sandboxes. Sandboxes come so often that
    /// each figure is told in each hour.
    ///
    /// # Errors
    /// A price is missing.
    pub(crate) fn month(&self, machine: Machine) -> anyhow::Result<(f64, f64)> {
        let fixed = [
            ("alarm", self.stack.alarms as f64),
            ("dashboard", self.stack.dashboards as f64),
            ("figure", IDLE_FIGURES as f64),
            ("secret", 1.0),
            ("schedule", MINUTES),
            ("lambda-request", MINUTES),
            (machine.price(), self.gb_seconds(MINUTES)),
            // That the schedule works is marked.
            ("dynamodb-write", MINUTES),
            ("dynamodb-read", MINUTES * self.life.idle_read_units),
            ("sqs", MINUTES * POLLS),
            ("logs", MINUTES * self.life.idle_log_bytes as f64),
        ];
        let costs = fixed.into_iter().map(|(name, amount)| self.list.cost(name, amount));
        let fixed = costs.sum::<anyhow::Result<f64>>()?;
        let figures = self.list.cost("figure", (FIGURES.len() - IDLE_FIGURES) as f64)?;
        let lives = DAYS * f64::from(self.arguments.sandboxes) * self.life(machine, EntryPoint::HttpApi)?;
        Ok((fixed + figures + lives, fixed))
    }

    /// Dollars of a million units, line by line.
    ///
    /// # Errors
    /// A price is missing.
    pub(crate) fn per_unit(&self) -> anyhow::Result<String> {
        let units = self.life.units as f64;
        let mut rows = vec![];
        for Line { price, of, amount } in self.lines(Machine::X86, EntryPoint::HttpApi) {
            let cost = self.list.cost(price, amount / units * MILLION)?;
            let unit = self.list.unit(price)?;
            rows.push(vec![format!("{price}{of}"), format!("{amount:.3} {unit}"), format!("{cost:.2}")]);
        }
        let List { read, region, .. } = self.list;
        let (all, unchecked, unseen) = self.list.doubts();
        let memory = self.stack.memory;
        let Arguments { units: made, took_ms, .. } = self.arguments;
        let head = format!(
            "list prices of {region}, read {read} (of {all}, {unchecked} not on AWS's own pages, {unseen} of these nowhere)\n\
             a sandbox of {made} units, which call back, and {made} that take away what these make\n\
             assumed: {took_ms} ms for an invocation, of {memory} GB; all parameters as they are by default\n\n"
        );
        let ((table, bucket), days) = (self.life.kept, self.stack.retention_days);
        let kept =
            format!("what is kept of it for {days} days: {table} bytes in the table, {bucket} in the bucket");
        let (table, bucket) = self.life.stays;
        let stays = format!(
            "\n\n{kept}\nwhat stays of it for good: {table} bytes in the table, {bucket} in the bucket"
        );
        Ok(head + &drawn(["price", "for a sandbox", "$ per million units"], rows) + &stays)
    }
}

/// A table whose last column is a number.
pub(crate) fn drawn<const N: usize>(header: [&str; N], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty().set_header(header);
    for row in rows {
        table.add_row(row);
    }
    if let Some(last) = table.column_mut(N - 1) {
        last.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}
