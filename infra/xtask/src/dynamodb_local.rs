//! Amazon's DynamoDB Local.

use std::fs;

use anyhow::Context as _;

use crate::run::{command, retried, root};

/// What the tests were written against.
const VERSION: &str = "2.6.1";
/// Pinned as well: an old Maven's own choice cannot copy native libraries.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Where the tests look for it.
fn folder() -> std::path::PathBuf {
    root().join("target/dynamodb-local")
}

/// Returns true if it is there, in the version that the tests were written against.
pub(crate) fn present() -> bool {
    fs::read_to_string(folder().join("complete")).is_ok_and(|version| version == VERSION)
}

/// Fetches Amazon's DynamoDB Local from Maven Central (51 MB) unless it is there already.
///
/// # Errors
/// When Maven cannot fetch it.
pub(crate) fn fetch() -> anyhow::Result<()> {
    if present() {
        return Ok(());
    }
    eprintln!("fetching DynamoDB Local {VERSION}");
    let folder = folder();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    // What an earlier version or an interrupted fetch has left would be loaded as well.
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write("pom.xml", &project())?;
    retried(|| {
        let mut maven = command("mvn");
        maven.args(["--batch-mode", "--quiet", "--file"]).arg(folder.join("pom.xml")).arg(COPY);
        maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", folder.join("lib").display()));
        maven
    })?;
    write("complete", VERSION)
}

/// Maven copies dependencies of a project, so there is one that has nothing else.
fn project() -> String {
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.ebb</groupId>
  <artifactId>dynamodb-local</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.amazonaws</groupId>
      <artifactId>DynamoDBLocal</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"
    )
}
