//! Checks of declared params, and of their values.

use serde_json::Value;

use super::{CheckedParam, DiagnosticCollector};
use crate::cel::{self, PATTERN_HELP, PatternError, TextPattern};
use crate::{At, Diagnostic, ParamDoc, ParamKind};

pub fn kind_name(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::String => "string",
        ParamKind::Integer => "integer",
        ParamKind::Number => "number",
        ParamKind::Boolean => "boolean",
        ParamKind::Object => "object",
        ParamKind::Array => "array",
    }
}

/// Checks that a declaration is consistent: bounds, pattern, default.
pub(super) fn check_declaration<'a>(
    report: &mut DiagnosticCollector,
    name: &At<String>,
    param: &'a ParamDoc,
) -> CheckedParam<'a> {
    let named = &name.value;
    let length = |bound: &Option<At<u32>>| bound.as_ref().map(|bound| (bound.at, f64::from(bound.value)));
    let bound = |bound: &Option<At<f64>>| bound.as_ref().map(|bound| (bound.at, bound.value));
    for (low, high, below, above) in [
        (bound(&param.minimum), bound(&param.maximum), "minimum", "maximum"),
        (length(&param.min_length), length(&param.max_length), "minLength", "maxLength"),
    ] {
        if let (Some((at, low)), Some((_, high))) = (low, high)
            && low > high
        {
            report.push(report.error("param", at, format!("the {below} of `{named}` is above its {above}")));
        }
    }
    let number = matches!(param.kind, ParamKind::Integer | ParamKind::Number);
    let text = param.kind == ParamKind::String;
    for (key, at, fits, kinds) in [
        ("minimum", param.minimum.as_ref().map(|bound| bound.at), number, "`integer` and `number`"),
        ("maximum", param.maximum.as_ref().map(|bound| bound.at), number, "`integer` and `number`"),
        ("minLength", param.min_length.as_ref().map(|bound| bound.at), text, "`string`"),
        ("maxLength", param.max_length.as_ref().map(|bound| bound.at), text, "`string`"),
        ("pattern", param.pattern.as_ref().map(|pattern| pattern.at), text, "`string`"),
    ] {
        if let Some(at) = at.filter(|_| !fits) {
            let message = format!("`{key}` does not apply to type {}", kind_name(param.kind));
            report.push(report.error("contradiction", at, message).help(format!("it is for {kinds}")));
        }
    }
    let pattern = param.pattern.as_ref().and_then(|pattern| {
        let compiled = matcher(report, &pattern.value).map_err(|error| match error {
            PatternError::TooSlow => report.exhausted(pattern.at),
            PatternError::Syntax(reason) => {
                let message = format!("the pattern of `{named}` is not a regular expression: {reason}");
                report.push(report.error("param", pattern.at, message));
            }
            error => {
                let message = format!("the pattern of `{named}` cannot be used: {error}");
                report.push(report.error("param", pattern.at, message).help(PATTERN_HELP));
            }
        });
        compiled.ok()
    });
    let checked = CheckedParam { doc: param, pattern };
    for allowed in param.one_of.iter().flat_map(|values| &values.value) {
        if let Err(wrong) = fits_kind(param.kind, &allowed.value) {
            let wrong = report.error("param", allowed.at, format!("an allowed value of `{named}` {wrong}"));
            report.push(quoted(report, param.kind, allowed, wrong));
        }
    }
    if let Some(values) = param.one_of.as_ref().filter(|values| values.value.is_empty()) {
        let help = "list the values that are allowed, or leave `enum` out";
        report.push(report.error("param", values.at, format!("the `enum` of `{named}` is empty")).help(help));
    }
    if let Some(required) = param.required.as_ref().filter(|required| required.value && param.optional) {
        let message = format!("`{named}` is required and optional");
        report.push(report.error("contradiction", required.at, message).help("keep one of the two"));
    }
    let Some(default) = &param.default else { return checked };
    if let Some(required) = param.required.as_ref().filter(|required| required.value) {
        let help = "keep one of the two; without a default it is required anyway";
        let message = format!("`{named}` is required and has a default");
        report.push(report.error("contradiction", required.at, message).help(help));
    }
    if param.sensitive {
        let message = format!("`{named}` is sensitive, so it cannot have a default");
        let help = "every reader of the plugin could read it; set it in the sandbox: `{secret: NAME, key: KEY}`";
        report.push(report.error("sensitive", default.at, message).help(help));
    } else if let Err(wrong) = fits(report, &checked, &default.value) {
        let wrong = report.error("param", default.at, format!("the default of `{named}` {wrong}"));
        let wrong = quoted(report, param.kind, default, wrong);
        report.push(nearest(report, param, default.value.as_str().unwrap_or_default(), wrong));
    }
    checked
}

/// Adds the most similar allowed value to an error.
pub(super) fn nearest(report: &DiagnosticCollector, param: &ParamDoc, text: &str, wrong: Diagnostic) -> Diagnostic {
    match cel::nearest(text, param.allowed().filter_map(Value::as_str)).filter(|_| !report.is_full()) {
        Some(near) => wrong.help(format!("did you mean `{near}`?")),
        None => wrong,
    }
}

/// Adds a help that quotes the value if a text is expected and the value is a number or boolean, or a help for `null`.
fn quoted(report: &DiagnosticCollector, kind: ParamKind, value: &At<Value>, wrong: Diagnostic) -> Diagnostic {
    match &value.value {
        Value::Number(_) | Value::Bool(_) if kind == ParamKind::String => {
            wrong.help(format!("quote it: \"{}\"", report.source.scalar(value.at, &value.value)))
        }
        Value::Null => wrong.help("leave it out; a param with `optional: true` may be null"),
        _ => wrong,
    }
}

/// Checks a value of a param. An error is the rest of a sentence whose subject is the value.
pub(super) fn fits(report: &DiagnosticCollector, param: &CheckedParam<'_>, value: &Value) -> Result<(), String> {
    let CheckedParam { doc: param, pattern } = param;
    if param.optional && value.is_null() {
        return Ok(());
    }
    fits_kind(param.kind, value)?;
    if param.one_of.is_some() && !param.allowed().any(|allowed| allowed == value) {
        let shown = |value: &Value| value.as_str().map_or_else(|| format!("`{value}`"), |text| format!("`{text}`"));
        let allowed: Vec<String> = param.allowed().take(12).map(shown).collect();
        return Err(format!("must be one of {}", allowed.join(", ")));
    }
    if let Some(number) = value.as_f64() {
        let bound = |bound: &Option<At<f64>>| bound.as_ref().map(|bound| bound.value);
        within(number, bound(&param.minimum), bound(&param.maximum), "must be", "")?;
    }
    let Value::String(text) = value else { return Ok(()) };
    let length = text.chars().count();
    let bound = |bound: &Option<At<u32>>| bound.as_ref().map(|bound| f64::from(bound.value));
    let rest = format!(" characters, not {length}");
    within(length as f64, bound(&param.min_length), bound(&param.max_length), "must have", &rest)?;
    let (Some(compiled), Some(At { value: pattern, .. })) = (pattern, &param.pattern) else { return Ok(()) };
    if !report.count(compiled.match_steps(text.len())) {
        return Err(format!("takes too many steps to match with `{pattern}`"));
    }
    if compiled.is_match(text) { Ok(()) } else { Err(format!("must match `{pattern}`")) }
}

fn within(number: f64, low: Option<f64>, high: Option<f64>, verb: &str, rest: &str) -> Result<(), String> {
    match (low, high) {
        (Some(low), _) if number < low => Err(format!("{verb} at least {low}{rest}")),
        (_, Some(high)) if number > high => Err(format!("{verb} at most {high}{rest}")),
        _ => Ok(()),
    }
}

fn fits_kind(kind: ParamKind, value: &Value) -> Result<(), String> {
    let (right, got) = match value {
        Value::String(_) => (kind == ParamKind::String, "text"),
        Value::Bool(_) => (kind == ParamKind::Boolean, "a boolean"),
        Value::Number(number) => match kind {
            ParamKind::Number => (true, "a number"),
            ParamKind::Integer => (number.is_i64() || number.is_u64(), "a number with a fraction"),
            _ => (false, "a number"),
        },
        Value::Array(_) => (kind == ParamKind::Array, "a list"),
        Value::Object(_) => (kind == ParamKind::Object, "a mapping"),
        Value::Null => (false, "null"),
    };
    if right { Ok(()) } else { Err(format!("must be of type {}, not {got}", kind_name(kind))) }
}

/// Compiles a pattern that must match the whole text.
fn matcher(report: &DiagnosticCollector, pattern: &str) -> Result<TextPattern, PatternError> {
    TextPattern::compile(&format!("^(?:{pattern})$"), |steps| report.count(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SourceText;
    use crate::tests::rows;

    #[test]
    fn patterns_match_the_whole_text() {
        let report = DiagnosticCollector::new(&SourceText::new("p", ""), &Default::default());
        let matcher_of = matcher(&report, "[a-z]+\"?\\.é|x").unwrap();
        assert_eq!(["abc\".é", "x", "xx", "ab.é "].map(|t| matcher_of.is_match(t)), [true, true, false, false]);
        assert!(matcher(&report, "(").is_err());
    }

    #[test]
    fn types_of_params() {
        for (kind, value, expected) in rows::<(ParamKind, Value, Option<String>)>("types_of_params") {
            assert_eq!(fits_kind(kind, &value).err(), expected, "{value}");
        }
    }
}
