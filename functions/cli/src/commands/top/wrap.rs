//! Lines that fit into a width of the terminal.

use console::measure_text_width;

use crate::progress::tree::TreeLine;

/// Divides a line of a tree like [`wrapped`]. The state of a unit is continued below it.
pub(super) fn wrapped_branch(TreeLine { branch, sign, text }: TreeLine, width: usize) -> Vec<TreeLine> {
    let signed = sign.map_or(0, |(sign, _)| measure_text_width(branch) + measure_text_width(sign));
    let below = if branch.starts_with('├') { "│ " } else { "  " };
    let lines = wrapped(&text, width.saturating_sub(signed)).into_iter().enumerate();
    let line = |(number, text): (usize, String)| match number {
        0 => TreeLine { branch, sign, text },
        _ if signed == 0 => text.into(),
        _ => TreeLine { branch: below, sign: None, text: format!(" {text}") },
    };
    lines.map(line).collect()
}

/// Divides a line into lines of at most `width` columns, at spaces where possible. The continuation of an indented line is
/// indented by two columns more.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let line = line.replace('\t', "    ");
    let further = match line.len() - line.trim_start_matches(' ').len() {
        0 => 0,
        indent => (indent + 2).min(width / 2),
    };
    let (mut lines, mut rest, mut indent) = (Vec::new(), line.as_str(), String::new());
    loop {
        let mut used = indent.len();
        let end = rest.char_indices().find_map(|(at, character)| {
            used += if character.is_ascii() { 1 } else { measure_text_width(character.encode_utf8(&mut [0; 4])) };
            (used > width && at > 0).then_some(at)
        });
        let Some(end) = end else {
            lines.push(indent + rest);
            return lines;
        };
        let space = rest[..end].rfind(' ').map(|at| at + 1);
        let (shown, more) = rest.split_at(space.filter(|at| at * 2 > end).unwrap_or(end));
        lines.push((indent + shown).trim_end().to_owned());
        (rest, indent) = (more, " ".repeat(further));
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_are_wrapped_at_spaces_and_keep_their_indent() {
        for (line, expected) in [
            ("a\tb", &["a    b"][..]),
            ("12345678 12345678 12345678 12345678 1234", &["12345678 12345678 12345678", "12345678 1234"]),
            ("  2. remove the cause, then: ebb retry pr-1", &["  2. remove the cause, then:", "    ebb retry pr-1"]),
            ("    | a line of a log that is long", &["    | a line of a log that is", "      long"]),
        ] {
            assert_eq!(wrapped(line, 30), expected, "{line}");
        }
    }
}
