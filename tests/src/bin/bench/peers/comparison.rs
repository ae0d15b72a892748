//! The table of the figures of all rounds.

use ebb_tests::figures::median;

use super::PeerFigures;

/// Returns the medians with the least and the greatest value, as a table in Markdown. Each engine has a name and the
/// figures of at least one round.
pub(crate) fn drawn(names: &[&str], figures: &[Vec<PeerFigures>]) -> String {
    let ratio = (names.len() > 1).then(|| names.join(" / "));
    let titles: Vec<String> = names.iter().map(|&name| name.to_owned()).chain(ratio).collect();
    let mut text = line("", &titles) + &line("---", &vec!["---".to_owned(); titles.len()]);
    for (row, (title, _)) in figures[0][0].iter().enumerate() {
        let values: Vec<Vec<f64>> =
            figures.iter().map(|rounds| rounds.iter().map(|round| round[row].1).collect()).collect();
        let mut cells: Vec<String> = values.iter().map(|values| cell(values)).collect();
        if let [ebb, restate] = values.as_slice() {
            cells.push(format!("{:.2}", median(ebb) / median(restate)));
        }
        text += &line(title, &cells);
    }
    text
}

fn line(title: &str, cells: &[String]) -> String {
    format!("| {title} | {} |\n", cells.join(" | "))
}

fn cell(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let digits = if median(values) < 100.0 { 2 } else { 0 };
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(values))
}
