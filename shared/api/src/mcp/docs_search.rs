//! Searches the pages of the book that are compiled into the program.
//!
//! Sections are ranked by BM25: a word that few sections have counts more, and so does one in a heading.

use std::collections::BTreeSet;

use serde_json::json;

use crate::mcp::arguments::tool_arguments;
use crate::mcp::target_tools::first;
use crate::mcp::{Answer, ApiCalls, ToolError};

/// The pages: the path below `docs/src`, and the text.
static PAGES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The section with a whole plugin and its sandbox, which the description of the tool names.
pub(crate) const EXAMPLE: &str = "plugins.md#A complete example";
/// Maximum sections of an answer.
const FOUND: usize = 8;
/// The number of times that a word of a heading counts.
const HEADING_WEIGHT: usize = 4;
/// Maximum different words of a query that count. The memory of a search grows with them.
const MAX_WORDS: usize = 32;
/// Words of questions, which say nothing about a section.
const FILLERS: [&str; 18] = [
    "an", "and", "are", "can", "do", "doe", "for", "from", "how", "in", "is", "it", "of", "the", "to", "what", "with",
    "why",
];
/// The constants of BM25 for repetitions and for the length of a section.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The part of a page below a heading.
struct BookSection {
    /// `PAGE#HEADING`, or `PAGE` for its beginning.
    name: String,
    /// The heading of the page.
    title: &'static str,
    heading: &'static str,
    lines: Vec<&'static str>,
}

fn sections() -> Vec<BookSection> {
    let mut sections = Vec::new();
    for (page, text) in PAGES {
        let (mut is_code, mut title) = (false, "");
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let heading = line.trim_start_matches('#').strip_prefix(' ').filter(|_| !is_code && line.starts_with('#'));
            match heading {
                Some(heading) => {
                    let is_title = line.starts_with("# ");
                    title = if is_title { heading } else { title };
                    let name = if is_title { (*page).to_owned() } else { format!("{page}#{heading}") };
                    sections.push(BookSection { name, title, heading, lines: Vec::new() });
                }
                None => sections.last_mut().into_iter().for_each(|section| section.lines.push(line)),
            }
        }
    }
    sections
}

/// Returns the words of a text in lower case and without the `s` of a plural.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1).map(|word| {
        let word = word.to_lowercase();
        if word.len() > 3 { word.trim_end_matches('s').to_owned() } else { word }
    })
}

/// Returns the first words of a query that can count, in alphabetical order.
fn query_words(query: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for word in words(query).filter(|word| !FILLERS.contains(&word.as_str())) {
        found.insert(word);
        if found.len() == MAX_WORDS {
            break;
        }
    }
    found.into_iter().collect()
}

/// Returns the sections that have words of a query, the best first.
fn ranked<'a>(sections: &'a [BookSection], query: &str) -> Vec<&'a BookSection> {
    let query = query_words(query);
    // For each section its length, and how often it has each word of the query.
    let counted: Vec<(f64, Vec<f64>)> = sections
        .iter()
        .map(|section| {
            let (mut length, mut counts) = (0.0, vec![0.0; query.len()]);
            let headings = std::iter::repeat_n(section.heading, HEADING_WEIGHT).chain([section.title]);
            for word in headings.chain(section.lines.iter().copied()).flat_map(words) {
                length += 1.0;
                if let Ok(found) = query.binary_search(&word) {
                    counts[found] += 1.0;
                }
            }
            (length, counts)
        })
        .collect();
    let number = sections.len() as f64;
    let average = counted.iter().map(|(length, _)| length).sum::<f64>() / number;
    let weight = |word: usize| {
        let having = counted.iter().filter(|(_, counts)| counts[word] > 0.0).count() as f64;
        (1.0 + (number - having + 0.5) / (having + 0.5)).ln()
    };
    let weights: Vec<f64> = (0..query.len()).map(weight).collect();
    let score = |(length, counts): &(f64, Vec<f64>)| -> f64 {
        let norm = K1 * (1.0 - B + B * length / average);
        counts.iter().zip(&weights).map(|(count, weight)| weight * count * (K1 + 1.0) / (count + norm)).sum()
    };
    let mut scored: Vec<(f64, &BookSection)> = counted.iter().map(score).zip(sections).collect();
    scored.retain(|(score, _)| *score > 0.0);
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    scored.into_iter().map(|(_, section)| section).collect()
}

tool_arguments! { SearchDocs:
    /// Words to search for.
    query: Option<String>,
    /// The name of a section that a search has found. Shows its text.
    section: Option<String>,
    /// The first line of the section to show, from 1.
    #[serde(default = "first")]
    from_line: usize,
}

pub(crate) async fn search_docs(_: &ApiCalls, arguments: SearchDocs) -> Result<Answer, ToolError> {
    let SearchDocs { query, section, from_line } = arguments;
    let all = sections();
    if let Some(name) = section {
        let missing = || ToolError::Arguments(format!("no section {name:?}: search for one with \"query\""));
        let found = all.iter().find(|section| section.name == name).ok_or_else(missing)?;
        let (title, next) = (format!("docs/src/{name}"), "search_docs with \"query\" finds other sections");
        let call = ("search_docs", json!({"section": name}));
        return Answer::of_text((title, next), &found.lines.join("\n"), from_line, call).map_err(ToolError::Arguments);
    }
    let query = query.ok_or_else(|| {
        ToolError::Arguments(format!("`query` or `section` is missing; the section {EXAMPLE:?} has a whole example"))
    })?;
    let found = ranked(&all, &query);
    let Some(best) = found.first() else {
        let next = format!("search_docs with other words, or {} for a whole example", json!({"section": EXAMPLE}));
        return Ok(Answer::new("No section has these words.", next));
    };
    let names = found.iter().take(FOUND).map(|section| section.name.clone());
    let text = best.lines.iter().map(|line| (*line).to_owned());
    let lines: Vec<String> = names.chain([String::new()]).chain(text).collect();
    let call = json!({"section": best.name});
    let rest = move |_| format!("The first section is longer: call search_docs {call}.");
    let title = "Names of sections, the best first, and the text of the first one:";
    Ok(Answer::new(title, "search_docs with \"section\" and one of the names shows its text").with(lines, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_finds_its_section() {
        let all = sections();
        assert!(all.len() > 300, "{} sections", all.len());
        for row in include_str!("../../tests/docs_questions.txt").lines() {
            let (query, expected) = row.split_once(" => ").unwrap();
            let found: Vec<&str> = ranked(&all, query).iter().take(3).map(|section| section.name.as_str()).collect();
            assert!(found.iter().any(|name| name.starts_with(expected)), "{query}: {found:?}");
        }
        assert!(ranked(&all, "zzzyx").is_empty());
        assert!(all.iter().any(|section| section.name == EXAMPLE));
        // A heading in code begins no section.
        let names: BTreeSet<&str> = all.iter().map(|section| section.name.as_str()).collect();
        assert!(names.contains("cli.md#ebb why") && names.contains("concepts.md"));
        assert!(all.iter().all(|section| !section.heading.starts_with('!')));
    }

    /// A search keeps a number for each word of the query and each section.
    #[test]
    fn a_long_query_has_few_words() {
        let long: String = (0..100_000).map(|number| format!("the word{number} ")).collect();
        assert_eq!(query_words(&long).len(), MAX_WORDS);
        assert_eq!(query_words("How to do it: the PODS"), ["pod"]);
    }
}
