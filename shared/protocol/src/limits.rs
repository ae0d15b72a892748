//! Limits of messages in bytes, unless the name states another unit.

pub use ebb_engine::MAX_UNITS;

pub const WEBHOOK_BODY: usize = 1 << 20;
/// An event of a source.
pub const SOURCE_BODY: usize = 4 << 20;
/// Values in a JSON text from outside, checked by [`check_json_values`]. The smallest values, such as `{"a":0}`, take
/// up to 64 MB in an evaluation. An event of GitHub has about 45 bytes per value, so one of 4 MiB has fewer values.
pub const JSON_VALUES: usize = 120_000;
/// A callback: outputs of a unit and the end of its log.
pub const CALLBACK_BODY: usize = 5 << 20;
/// The body of a Lambda event, measured by [`lambda_event_size`]. Lambda accepts events of 6 MB (6,291,456 bytes). The
/// rest is for headers, up to 10 KB at API Gateway, and for metadata of the request.
pub const LAMBDA_EVENT: usize = (6 << 20) - (64 << 10);
/// An API response in a Lambda event, measured by [`lambda_event_size`].
pub const API_RESPONSE: usize = LAMBDA_EVENT - (64 << 10);
/// Outputs of a target in an API response, measured by [`lambda_event_size`].
pub const API_RESPONSE_OUTPUTS: usize = 4 << 20;
/// An API request: a plugin document with its scripts.
pub const API_BODY: usize = 5 << 20;
/// The response of a webhook unit.
pub const RESPONSE_BODY: usize = 1 << 20;
/// The response of a relay to a batch. It holds the result of at least one unit.
pub const BATCH_RESPONSE_BODY: usize = 6 << 20;
pub const OUTPUT: usize = 1 << 20;
pub const OUTPUTS: usize = 4 << 20;
/// Outputs of all units that a target shows.
pub const SHOWN_OUTPUTS: usize = 4 << 20;
/// Outputs that are stored in the record. Larger ones go to the bucket. A record of this size takes about four write
/// units, above which the bucket is cheaper.
pub const OUTPUTS_INLINE: usize = 3 << 10;
/// The stored end of a log.
pub const LOG_TAIL: usize = 256 << 10;
/// Distinct successes of one attempt that are stored and undone. Retries of a receiver that creates a new resource each
/// time stay below the limit. Further successes are only counted, so that a sender cannot grow a run without limit.
pub const DISTINCT_RESULTS: usize = 16;
/// The stored beginning of the response to a failed webhook request.
pub const EVIDENCE: usize = 2 << 10;
/// The stored reason of a rejected callback.
pub const REFUSAL: usize = 256;
/// The stored text of a failure.
pub const MESSAGE: usize = 1 << 10;
/// The progress of a script, in characters.
pub const PROGRESS: usize = 200;
/// The tolerance of a lifecycle webhook's timestamp in seconds, as in Standard Webhooks.
pub const WEBHOOK_TOLERANCE_SECONDS: u64 = 300;

/// Returns the bytes of a JSON text as a string in a Lambda event: each quotation mark and backslash takes one more
/// byte. Serialized JSON contains no control characters.
pub fn lambda_event_size(json: &[u8]) -> usize {
    json.len() + json.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// Returns the bytes of a value's JSON in a Lambda event, with a separator.
pub fn lambda_event_size_of(value: &impl serde::Serialize) -> usize {
    // A value that cannot be serialized takes no space.
    serde_json::to_vec(value).map_or(0, |json| lambda_event_size(&json) + 1)
}

/// Returns the number of values in a JSON text, which is checked before the text is parsed.
///
/// # Errors
/// Returns the problem of a text with more than `max` values.
pub fn check_json_values(json: &[u8], max: usize) -> Result<usize, String> {
    match json_values(json) {
        values if values > max => Err(format!("{values} JSON values; the limit is {max}")),
        values => Ok(values),
    }
}

/// Returns the number of values in a JSON text. Keys do not count.
fn json_values(json: &[u8]) -> usize {
    let mut values = 1;
    let mut last = 0;
    let mut bytes = json.iter().filter(|byte| !byte.is_ascii_whitespace());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => {
                while bytes.next().is_some_and(|&byte| byte != b'"' && (byte != b'\\' || bytes.next().is_some())) {}
            }
            b',' | b'[' | b'{' => values += 1,
            // The list or object is empty.
            b']' | b'}' if matches!(last, b'[' | b'{') => values -= 1,
            _ => {}
        }
        last = byte;
    }
    values
}

/// Shortens `text` to [`MESSAGE`] bytes at a character boundary. Control characters other than line feeds and tabs are
/// replaced. For foreign text that is stored and shown.
pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

/// Shortens `text` to `most` bytes, otherwise like [`message`].
pub fn clean(text: &str, most: usize) -> String {
    let mut clean = printable(text);
    if clean.len() > most {
        clean.truncate(clean.floor_char_boundary(most - '…'.len_utf8()));
        clean.push('…');
    }
    clean
}

/// Returns the progress of a script in one line, without control characters and with at most [`PROGRESS`] characters.
/// Returns `None` if no character is left.
pub fn progress(text: &str) -> Option<String> {
    let clean: String = text.chars().filter(|&c| !c.is_control() && !is_unprintable(c)).collect();
    let text: String = clean.trim().chars().take(PROGRESS).collect();
    (!text.is_empty()).then_some(text)
}

/// Replaces the characters that could control a terminal, change the order of other characters or hide text, except line
/// feeds and tabs.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns true for a character that [`printable`] replaces.
pub(crate) fn is_unprintable(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Spaces and operators without a width, and tags, which repeat ASCII invisibly. Joiners are parts of words and emojis.
        '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}' => true,
        // Marks, embeddings, overrides and isolates of directions (Unicode Bidirectional Algorithm), and separators of
        // lines and paragraphs.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    }
}

/// Returns the first `characters` of `text`, with an ellipsis if there are more.
pub fn excerpt(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn texts_for_a_terminal_have_no_controls() {
        for (text, expected) in rows::<(String, String)>("texts_for_a_terminal_have_no_controls") {
            assert_eq!(printable(&text), expected);
        }
    }

    #[test]
    fn progress_is_one_short_line() {
        for (text, expected) in rows::<(String, Option<String>)>("progress_is_one_short_line") {
            assert_eq!(progress(&text), expected, "{text:?}");
        }
        assert_eq!(progress(&"é".repeat(300)), Some("é".repeat(PROGRESS)));
    }

    #[test]
    fn values_are_counted_without_parsing() {
        for (json, expected) in rows::<(String, usize)>("values_are_counted_without_parsing") {
            assert_eq!(json_values(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, most, expected) in rows::<(String, usize, String)>("texts_are_cut_between_characters") {
            assert_eq!(clean(&text, most), expected, "{text:?} in {most} bytes");
        }
        assert_eq!(excerpt("héé", 3), "héé");
        assert_eq!(excerpt("hééé", 3), "héé…");
        assert_eq!(excerpt("", 0), "");
    }
}
