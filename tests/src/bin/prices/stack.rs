//! What the stack has that is paid for by the month, from the template.

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// What is paid for whether or not anything runs, and what an invocation takes.
pub(crate) struct Stack {
    /// Memory of a function, in GB.
    pub(crate) memory: f64,
    /// Metrics that alarms look at: each is paid for, also those of one alarm.
    pub(crate) alarms: usize,
    pub(crate) dashboards: usize,
}

impl Stack {
    /// That of a template.
    ///
    /// # Errors
    /// It is no template, or has not what is paid for.
    pub(crate) fn read(template: &str) -> anyhow::Result<Self> {
        let template: Value = serde_saphyr::from_str(template).context("template.yaml")?;
        let memory = template["Parameters"]["CompleteMemory"]["Default"].as_f64().context("no CompleteMemory")?;
        let resources = template["Resources"].as_object().context("no Resources")?;
        let of = |kind: &'static str| resources.values().filter(move |it| it["Type"] == kind);
        let others = ["ReceiveMemory", "ApiMemory", "SweepMemory"];
        let same = others.iter().all(|name| template["Parameters"][*name]["Default"].as_f64() == Some(memory));
        ensure!(same, "functions differ in memory, which is not counted here");
        let metrics = |alarm: &Value| match alarm["Properties"]["Metrics"].as_array() {
            Some(metrics) => metrics.iter().filter(|it| it["MetricStat"].is_object()).count(),
            None => 1,
        };
        let alarms = of("AWS::CloudWatch::Alarm").map(metrics).sum();
        Ok(Self { memory: memory / 1024.0, alarms, dashboards: of("AWS::CloudWatch::Dashboard").count() })
    }
}
