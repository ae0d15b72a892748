//! Blocks of code in pages of the book.

/// A block of code without its indent.
pub struct CodeBlock {
    /// `PATH:LINE`.
    pub place: String,
    pub language: String,
    /// The text of the comment above the block, or an empty text.
    pub mark: String,
    pub text: String,
}

/// Returns the blocks of a page in their order.
pub fn blocks(path: &str, page: &str) -> Vec<CodeBlock> {
    let (mut blocks, mut mark) = (Vec::new(), "");
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let content = line.trim_start();
        if let Some(comment) = content.strip_prefix("<!-- ") {
            mark = comment.trim_end_matches(" -->");
        } else if let Some(language) = content.strip_prefix("```") {
            let indent = line.len() - content.len();
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let body = body.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()));
            blocks.push(CodeBlock {
                place: format!("{path}:{number}"),
                language: language.to_owned(),
                mark: mark.to_owned(),
                text: body.collect(),
            });
            mark = "";
        }
    }
    blocks
}
