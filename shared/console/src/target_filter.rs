//! The filter of the list of targets, and the words of its search box, such as `phase:failed team=maps owner:me`.

use ebb_protocol::TargetPhase;
use serde::Deserialize;

use crate::paths;

/// An empty text filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetListFilter {
    /// A phase. `gone` selects the gone targets, which are not in the list otherwise.
    pub phase: String,
    /// `KEY=VALUE`, with commas between several.
    pub label: String,
    pub owner: String,
    /// `NAME` or `NAME@VERSION`.
    pub plugin: String,
    /// A text in the name, the owner, labels, plugins or the first cause. A request has the words of the search box.
    pub q: String,
    /// The column of the order, with `-` before it for the reverse. Without one, the worst is the first.
    pub sort: String,
}

impl TargetListFilter {
    pub fn parsed(mut self) -> Self {
        let mut texts = Vec::new();
        for (word, is_text) in words(&std::mem::take(&mut self.q)) {
            match word.split_once(':').filter(|_| !is_text) {
                Some(("phase", value)) => value.clone_into(&mut self.phase),
                Some(("owner", value)) => value.clone_into(&mut self.owner),
                Some(("plugin", value)) => value.clone_into(&mut self.plugin),
                _ if word.contains('=') && !is_text => {
                    self.label = [&*self.label, &*word].join(if self.label.is_empty() { "" } else { "," });
                }
                _ => texts.push(word),
            }
        }
        self.q = texts.join(" ");
        self
    }

    /// Returns the phase of the filter, or `None` without one and for an unknown text.
    pub fn state(&self) -> Option<TargetPhase> {
        TargetPhase::named(&self.phase)
    }

    /// Returns the words of the search box. [`Self::parsed`] makes the filter from them.
    pub(crate) fn words(&self) -> Vec<String> {
        let named = [("phase", &self.phase), ("owner", &self.owner), ("plugin", &self.plugin)];
        let named = named.into_iter().filter(|(_, value)| !value.is_empty());
        let mut words: Vec<String> = named.map(|(name, value)| word(name, ':', value)).collect();
        // NUL stands for a comma of a value.
        let labels = self.label.replace("\\,", "\0");
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        words.extend(labels.map(|(name, value)| word(name, '=', &value.replace('\0', "\\,"))));
        match self.q.contains([':', '=', '"']) {
            true => words.push(quoted(&self.q)),
            false => words.extend(Some(self.q.clone()).filter(|text| !text.is_empty())),
        }
        words
    }

    /// Returns the path of a page of the list. `token` and `select` are as in [`crate::TargetListView`].
    pub(crate) fn page(&self, token: &str, select: &str) -> String {
        let q = self.words().join(" ");
        paths::targets(&[("q", q.as_str()), ("sort", &self.sort), ("nextToken", token), ("select", select)])
    }
}

pub(crate) fn word(name: &str, sign: char, value: &str) -> String {
    let is_plain = !value.contains(|c: char| c.is_whitespace() || c == '"');
    format!("{name}{sign}{}", if is_plain { value.to_owned() } else { quoted(value) })
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Splits a text at its blanks outside of quotation marks. The flag of a word is true if it begins with one.
fn words(text: &str) -> Vec<(String, bool)> {
    let (mut words, mut is_quoted, mut is_new) = (Vec::<(String, bool)>::new(), false, true);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_whitespace() && !is_quoted {
            is_new = true;
            continue;
        }
        if std::mem::take(&mut is_new) {
            words.push((String::new(), c == '"'));
        }
        // Within quotation marks, two of them stand for one.
        if c == '"' && !(is_quoted && rest.next_if_eq(&'"').is_some()) {
            is_quoted = !is_quoted;
        } else if let Some((word, _)) = words.last_mut() {
            word.push(c);
        }
    }
    words
}
