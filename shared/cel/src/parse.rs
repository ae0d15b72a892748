//! Parses expressions.

use cel::parser::PrattParser;

use super::dashes::DashedNames;
use super::{Expression, ExpressionIssue, MAX_LENGTH, MAX_NODES, Scope, walk};

/// Parses an expression with the names of `scope`.
///
/// # Errors
/// Returns all issues, at most [`MAX_ISSUES`](super::MAX_ISSUES). After a syntax error, returns only the syntax error.
pub fn parse(text: &str, scope: Scope) -> Result<Expression, Vec<ExpressionIssue>> {
    if text.len() > MAX_LENGTH {
        let message = format!("the expression has {} bytes; the limit is {MAX_LENGTH}", text.len());
        return Err(vec![ExpressionIssue::new("expression-limit", message)]);
    }
    if text.trim().is_empty() {
        return Err(vec![ExpressionIssue::new("syntax", "the expression is empty")]);
    }
    let dashes = DashedNames::replaced(text);
    let parser = PrattParser::new().enable_optional_syntax(true).max_expression_node_count(4 * MAX_NODES);
    let mut tree = parser.parse(&dashes.text).map_err(|errors| vec![syntax(text, &errors)])?;
    walk::shape(&tree)?;
    dashes.restore(&mut tree);
    walk::analyse(text, &dashes.text, tree, scope)
}

/// Parses an expression like [`parse`]. Returns the message of the first issue as an error.
pub fn parse_checked(text: &str, scope: Scope) -> Result<Expression, String> {
    parse(text, scope).map_err(|issues| issues.into_iter().next().map(|issue| issue.message).unwrap_or_default())
}

fn syntax(text: &str, errors: &cel::ParseErrors) -> ExpressionIssue {
    let Some(first) = errors.errors.first() else {
        return ExpressionIssue::new("syntax", "this is not a CEL expression");
    };
    let message = first.msg.lines().next().unwrap_or_default();
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.replace("'<EOF>'", "<EOF>").replace("mismatched input <EOF>", "it ends too early,");
    let message = message.replace("<EOF>", "the end").replace("mismatched input", "unexpected");
    let issue = ExpressionIssue::new("syntax", format!("this is not a CEL expression: {message}"));
    // The parser counts bytes from 1, and a carriage return ends no line for it.
    let [line, column] = [first.pos.0, first.pos.1].map(|count| usize::try_from(count).unwrap_or_default().max(1) - 1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let offset = (start + column).min(text.len());
    ExpressionIssue { offset, length: 1, ..issue }
}
