//! The parts of the stack that are paid by the month, and the defaults of its parameters, from the template.

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The cost of an idle stack, and the time and memory of an invocation.
pub(crate) struct Stack {
    /// Memory of each function, in GB.
    pub(crate) memory: f64,
    /// Metrics that alarms look at: each is paid for, also those of one alarm.
    pub(crate) alarms: usize,
    pub(crate) dashboards: usize,
    /// Bytes of the entry's line for a callback.
    pub(crate) entry_line: usize,
    /// The number of days for which the data of gone sandboxes is kept.
    pub(crate) retention_days: u64,
    /// Which lines functions print, as `RUST_LOG` says it.
    pub(crate) filter: String,
}

/// The shortest values that API Gateway writes into a line of the access log: an address of IPv4, four digits of milliseconds.
const OF_A_REQUEST: [(&str, &str); 8] = [
    ("$context.requestTimeEpoch", "1795341600"),
    ("$context.identity.sourceIp", "203.0.113.100"),
    ("$context.httpMethod", "POST"),
    ("$context.path", "/v1/callbacks"),
    ("$context.status", "204"),
    ("$context.responseLatency", "1000"),
    ("$context.integrationErrorMessage", "-"),
    ("$context.requestId", "JKJaXmPLvHcESHA="),
];
const FUNCTIONS: [&str; 4] = ["Receive", "Complete", "Sweep", "Api"];

impl Stack {
    /// Reads a template.
    ///
    /// # Errors
    /// It is not a template, has not what is paid for, or has something that is not counted here.
    pub(crate) fn read(template: &str) -> anyhow::Result<Self> {
        let template: Value = serde_saphyr::from_str(template).context("template.yaml")?;
        let default = |name: &str| &template["Parameters"][name]["Default"];
        let properties = |name: &str| &template["Resources"][name]["Properties"];
        let mut sizes = FUNCTIONS.iter().map(|name| {
            let parameter = properties(name)["MemorySize"].as_str().unwrap_or_default();
            default(parameter).as_f64().with_context(|| format!("{name} has no MemorySize by a parameter"))
        });
        let memory = sizes.next().context("no function")??;
        for other in sizes {
            ensure!(other? == memory, "functions differ in memory, which is not counted here");
        }
        let quiet = *default("PlatformLogLevel") == "WARN";
        ensure!(quiet, "Lambda logs each invocation, which is not counted here");
        let mut line =
            properties("EntryStage")["AccessLogSettings"]["Format"].as_str().context("no Format")?.to_owned();
        for (name, value) in OF_A_REQUEST {
            line = line.replace(name, value);
        }
        ensure!(!line.contains("$context"), "a variable of the entry's line is not counted here: {line}");
        let filter = template["Globals"]["Function"]["Environment"]["Variables"]["RUST_LOG"].as_str();
        let level = default("LogLevel").as_str().context("no LogLevel")?;
        let filter = filter.context("no RUST_LOG")?.replace("${LogLevel}", level);
        let retention_days = default("RetentionDays").as_u64().context("no RetentionDays")?;
        ensure!(retention_days > 0, "everything is kept, which is not counted here");
        let resources = template["Resources"].as_object().context("no Resources")?;
        let of = |kind: &'static str| resources.values().filter(move |it| it["Type"] == kind);
        let metrics = |alarm: &Value| match alarm["Properties"]["Metrics"].as_array() {
            // Those under a condition are not there by default.
            Some(metrics) => metrics.iter().filter(|it| it["MetricStat"].is_object()).count(),
            None => 1,
        };
        let alarms = of("AWS::CloudWatch::Alarm").map(metrics).sum();
        let dashboards = of("AWS::CloudWatch::Dashboard").count();
        Ok(Self {
            memory: memory / 1024.0,
            alarms,
            dashboards,
            entry_line: line.len(),
            retention_days,
            filter,
        })
    }
}
