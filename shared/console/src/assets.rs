//! The style, the script and the icon of all pages. Their names have a digest, so that browsers keep them.

use std::sync::LazyLock;

use ebb_protocol::id::short_digest;

use crate::paths;

/// A file that pages use. It never changes under its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleAsset {
    pub path: String,
    pub content_type: &'static str,
    pub content: &'static str,
}

const DIGEST: usize = 16;

static ASSETS: LazyLock<[ConsoleAsset; 3]> = LazyLock::new(|| {
    let asset = |stem: &str, ending: &str, content_type, content: &'static str| {
        let digest = short_digest(&["console asset", content], DIGEST);
        ConsoleAsset { path: format!("{}/assets/{stem}-{digest}.{ending}", paths::ROOT), content_type, content }
    };
    [
        asset("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
        asset("live", "js", "text/javascript; charset=utf-8", include_str!("../assets/live.js")),
        asset("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")),
    ]
});

pub fn all() -> &'static [ConsoleAsset; 3] {
    &ASSETS
}

pub fn find(path: &str) -> Option<&'static ConsoleAsset> {
    all().iter().find(|asset| asset.path == path)
}
