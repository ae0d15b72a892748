//! The OpenTelemetry collector, and what it has taken.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

/// A running collector; ends when this is dropped.
pub(crate) struct Collector {
    child: Child,
    pub(crate) endpoint: String,
    folder: tempfile::TempDir,
}

/// A span that was taken, in the JSON of OTLP.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    pub(crate) parent_span_id: String,
    pub(crate) kind: i64,
    links: Vec<Value>,
    attributes: Vec<Value>,
}

impl Span {
    /// Returns the ids of the spans that it is linked to.
    pub(crate) fn links(&self) -> Vec<&str> {
        self.links.iter().map(|link| link["spanId"].as_str().unwrap()).collect()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|one| one["key"] == name)?["value"]["stringValue"].as_str()
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let program = tokio::task::spawn_blocking(program).await.unwrap();
        loop {
            // Another process may take the port first.
            if let Some(collector) = Self::at_any_port(&program).await {
                return collector;
            }
        }
    }

    async fn at_any_port(program: &Path) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": format!("127.0.0.1:{port}")}}}},
            "exporters": {"file": {"path": folder.path().join("spans"), "flush_interval": "50ms"}},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let file = folder.path().join("settings.yaml");
        fs::write(&file, settings.to_string()).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(format!("file:{}", file.display()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut collector = Self { child, endpoint: format!("http://127.0.0.1:{port}"), folder };
        let begun = Instant::now();
        loop {
            let log = fs::read_to_string(collector.folder.path().join("log")).unwrap();
            if log.contains("Everything is ready") {
                return Some(collector);
            }
            if log.contains("address already in use") {
                return None;
            }
            assert!(collector.child.try_wait().unwrap().is_none(), "{log}");
            assert!(begun.elapsed() < Duration::from_secs(30), "{log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All that it has written.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.folder.path().join("spans")).unwrap_or_default()
    }

    /// What it has taken, once that is enough.
    pub(crate) async fn spans(&self, enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let spans = spans(&self.text());
            if enough(&spans) {
                return spans;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{spans:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spans(text: &str) -> Vec<Span> {
    // The last line may not be whole yet.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let all = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let resources = lines.flat_map(|line| all(&line, "resourceSpans"));
    let scopes = resources.flat_map(|resource| all(&resource, "scopeSpans"));
    scopes.flat_map(|scope| all(&scope, "spans")).map(|span| serde_json::from_value(span).unwrap()).collect()
}

/// Where it is, built if need be.
fn program() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let built = Command::new(cargo).args(["xtask", "build", "collector"]).current_dir(root).output().unwrap();
    assert!(built.status.success(), "`cargo xtask build collector`: {}", String::from_utf8_lossy(&built.stderr));
    PathBuf::from(String::from_utf8(built.stdout).unwrap().trim())
}
