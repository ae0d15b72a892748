//! Presets of sources: documents that know a sender.
//!
//! The header comment of a preset has its summary in the first line, and the setup of the sender in lines that begin with
//! `# Sender: `.

use crate::{DocumentVars, NoFiles, SourceDoc, load};

#[derive(Clone, Copy, Debug)]
pub struct SourcePreset {
    pub name: &'static str,
    /// The document as YAML, with its header comment.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal)+) => {
        [$(SourcePreset { name: $name, text: include_str!(concat!("../presets/", $name, ".yaml")) }),+]
    };
}

/// All presets, sorted by name.
pub static PRESETS: [SourcePreset; 20] = presets![
    "agent-sandbox" "argocd" "azure-devops" "bitbucket" "bitbucket-data-center" "cdevents" "claude-sessions" "coder"
    "daytona" "e2b" "gitea" "github" "github-branches" "github-deployments" "gitlab" "gitlab-branches"
    "gitlab-deployments" "netlify" "qovery" "vercel"
];

pub fn preset(name: &str) -> Option<&'static SourcePreset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl SourcePreset {
    /// Returns the summary in one line.
    pub fn summary(&self) -> &'static str {
        self.comments().next().unwrap_or_default()
    }

    pub fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.comments().filter_map(|line| line.strip_prefix("Sender: "))
    }

    fn comments(&self) -> impl Iterator<Item = &'static str> {
        self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim)
    }

    /// Returns a source with this name that uses the preset, to which resources are to be added.
    pub fn starter(&self, name: &str) -> String {
        let lines = self.text.lines().skip_while(|line| !line.starts_with("verify:"));
        let verify = lines.enumerate().take_while(|(at, line)| *at == 0 || line.starts_with(' '));
        let verify: String = verify.map(|(_, line)| format!("{line}\n")).collect();
        format!(
            "apiVersion: ebb.dev/v1\nkind: Source\nname: {name}\npreset: {}\n{verify}# The document of each target. Add its \
             resources, such as `db: {{plugin: tenant-db@2}}`.\ndocument:\n  ttl: 72h\n  resources: {{}}\n",
            self.name
        )
    }

    pub fn document(&self) -> SourceDoc {
        let file = format!("presets/{}.yaml", self.name);
        load::event_source(&file, self.text, &NoFiles, &DocumentVars::none()).expect("a test loads each preset")
    }
}
