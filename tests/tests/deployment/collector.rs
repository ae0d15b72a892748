//! The OpenTelemetry collector, and what it has taken.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running collector; ends when this is dropped.
pub(crate) struct Collector {
    child: Child,
    pub(crate) endpoint: String,
    folder: tempfile::TempDir,
}

/// A span that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Span(Value);

impl Span {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }

    pub(crate) fn trace(&self) -> &str {
        self.text("traceId")
    }

    pub(crate) fn id(&self) -> &str {
        self.text("spanId")
    }

    pub(crate) fn parent(&self) -> &str {
        self.text("parentSpanId")
    }

    pub(crate) fn kind(&self) -> i64 {
        self.0["kind"].as_i64().unwrap()
    }

    /// Spans that it is linked to.
    pub(crate) fn links(&self) -> Vec<&str> {
        let links = self.0["links"].as_array().into_iter().flatten();
        links.map(|link| link["spanId"].as_str().unwrap()).collect()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let mut all = self.0["attributes"].as_array().into_iter().flatten();
        all.find(|one| one["key"] == name)?["value"]["stringValue"].as_str()
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let program = tokio::task::spawn_blocking(program).await.unwrap();
        loop {
            // Somebody else may take the port before it does.
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
    scopes.flat_map(|scope| all(&scope, "spans")).map(Span).collect()
}

/// Where it is, built if need be.
fn program() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let built = Command::new(cargo).args(["xtask", "build", "collector"]).current_dir(root).output().unwrap();
    assert!(built.status.success(), "`cargo xtask build collector`: {}", String::from_utf8_lossy(&built.stderr));
    PathBuf::from(String::from_utf8(built.stdout).unwrap().trim())
}
