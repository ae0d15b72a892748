//! Graphs of webhook units, as documents.

use clap::ValueEnum;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunShape {
    /// Each unit waits for the previous one.
    Chain,
    /// All units but the first wait for the first.
    FanOut,
    /// The last unit waits for all others.
    FanIn,
    /// The first, then all others, then the last.
    Diamond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnitOutputs {
    /// One output, which the dependents read.
    Kept,
    /// No output. Edges are order only.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunGraph {
    pub(crate) shape: RunShape,
    pub(crate) units: usize,
    pub(crate) outputs: UnitOutputs,
}

/// Minimum number of units. Every shape has a first unit, a last unit and one between them.
pub(crate) const MIN_UNITS: usize = 3;

impl RunShape {
    /// Returns true if a unit waits for several others.
    pub(crate) fn joins(self) -> bool {
        matches!(self, Self::FanIn | Self::Diamond)
    }

    fn dependencies(self, unit: usize, units: usize) -> std::ops::Range<usize> {
        let last = units - 1;
        match self {
            Self::Chain => unit.saturating_sub(1)..unit,
            Self::FanOut => 0..unit.min(1),
            Self::FanIn if unit == last => 0..last,
            Self::FanIn => 0..0,
            Self::Diamond if unit == last => 1..last,
            Self::Diamond => 0..unit.min(1),
        }
    }
}

impl RunGraph {
    /// Returns a plugin with this name and version. Its units send requests to `url`.
    pub(crate) fn plugin(self, name: &str, url: &str) -> String {
        let mut text = format!("apiVersion: ebb.dev/v1\nkind: Plugin\nname: {name}\npreStart:\n");
        for unit in 0..self.units {
            let dependencies = self.shape.dependencies(unit, self.units);
            let names = dependencies.map(|unit| match self.outputs {
                UnitOutputs::Kept => format!("\"${{units.u{unit}.outputs.id}}\""),
                UnitOutputs::Nothing => format!("u{unit}"),
            });
            let names = names.collect::<Vec<_>>().join(", ");
            let (read, rest) = match self.outputs {
                UnitOutputs::Kept => {
                    (names.as_str(), "    outputs: {id: {value: \"${response.body.id}\"}}\n".to_owned())
                }
                UnitOutputs::Nothing if names.is_empty() => ("", String::new()),
                UnitOutputs::Nothing => ("", format!("    after: [{names}]\n")),
            };
            let body = format!("{{unit: u{unit}, read: [{read}]}}");
            text += &format!("  u{unit}:\n    webhook: {{url: \"{url}\", body: {body}}}\n{rest}");
        }
        text
    }
}
