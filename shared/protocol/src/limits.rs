//! Limits of messages, in bytes unless the name says otherwise.

pub const WEBHOOK_BODY: usize = 1 << 20;
/// A callback: the outputs of one unit and the tail of its log.
pub const CALLBACK_BODY: usize = 5 << 20;
/// A body as a function on Lambda gets it: [`lambda_event_size`]. Lambda takes events of 6 MB (6,291,456 bytes); in the rest are
/// headers, of which API Gateway takes 10 KB, and what it says of the request.
pub const LAMBDA_EVENT: usize = (6 << 20) - (64 << 10);
/// An answer of the api as a function on Lambda gives it: [`lambda_event_size`].
pub const API_RESPONSE: usize = LAMBDA_EVENT - (64 << 10);
/// Outputs of a target in an answer of the api: [`lambda_event_size`].
pub const API_RESPONSE_OUTPUTS: usize = 4 << 20;
/// An api request: a plugin document with its scripts.
pub const API_BODY: usize = 5 << 20;
/// What is read of a webhook unit's response.
pub const RESPONSE_BODY: usize = 1 << 20;
/// Bytes that are read of a relay's answers to a batch: the result of one unit and more.
pub const BATCH_RESPONSE_BODY: usize = 6 << 20;
pub const OUTPUT: usize = 1 << 20;
pub const OUTPUTS: usize = 4 << 20;
/// Bytes that a target shows of the outputs of all its units.
pub const SHOWN_OUTPUTS: usize = 4 << 20;
/// Outputs that stay in the record; larger ones go to the bucket. With the record's own fields this is about what
/// four write units hold: below it the table is cheaper than a request to the bucket.
pub const OUTPUTS_INLINE: usize = 3 << 10;
/// The tail of a log that is kept.
pub const LOG_TAIL: usize = 256 << 10;
/// Distinct successes of one attempt that are kept, each of which the teardown undoes. Retries of a receiver that creates
/// something new each time stay below it; further ones are counted only, so that no sender can grow a run.
pub const DISTINCT_RESULTS: usize = 16;
/// The beginning of the answer to a failed webhook request that is kept.
pub const EVIDENCE: usize = 2 << 10;
/// The reason why a callback was refused that is kept.
pub const REFUSAL: usize = 256;
/// Text of a failure that is kept.
pub const MESSAGE: usize = 1 << 10;
/// Seconds that a lifecycle webhook's timestamp may differ from our clock (Standard Webhooks: 5 minutes).
pub const WEBHOOK_TOLERANCE_SECONDS: u64 = 300;

/// Bytes of a JSON text inside of Lambda's event, where it is a JSON string: each quotation mark and each backslash of it
/// takes one byte more. Control characters are none in JSON as programs write it.
pub fn lambda_event_size(json: &[u8]) -> usize {
    json.len() + json.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// Bytes of a value's JSON inside of Lambda's event, with what separates it from the next one.
pub fn lambda_event_size_of(value: &impl serde::Serialize) -> usize {
    // A value that is not written takes no room.
    serde_json::to_vec(value).map_or(0, |json| lambda_event_size(&json) + 1)
}

/// `text` cut to at most [`MESSAGE`] bytes at a character boundary, control characters but line feeds and tabs
/// replaced: text of foreign origin that will be stored and shown.
pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

/// `text` cut to at most `most` bytes, otherwise like [`message`].
pub fn clean(text: &str, most: usize) -> String {
    let mut clean = printable(text);
    if clean.len() > most {
        clean.truncate(clean.floor_char_boundary(most - '…'.len_utf8()));
        clean.push('…');
    }
    clean
}

/// Returns `text` with its control characters replaced, except line feeds and tabs.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
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

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, most, expected) in [
            ("héé", 5, "héé"),
            ("hééé", 6, "hé…"),
            ("hééé", 5, "h…"),
            ("éé", 3, "…"),
            ("a\u{7}\n\tb", 9, "a\u{fffd}\n\tb"),
        ] {
            assert_eq!(clean(text, most), expected, "{text:?} in {most} bytes");
        }
        assert_eq!(excerpt("héé", 3), "héé");
        assert_eq!(excerpt("hééé", 3), "héé…");
        assert_eq!(excerpt("", 0), "");
    }
}
