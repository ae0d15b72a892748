//! Masks sensitive values in logs.
//!
//! Each line of a value is masked, so that a value is also found if the log indents it or has a part of it. Other forms
//! of a value, such as base64, are not found.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::entrypoint::EntrypointSpec;
use ebb_protocol::script::end_of;

const MASK: &[u8] = b"***";
/// The minimum length of a masked line in bytes. Masking shorter ones would remove large parts of a log.
const MIN_LINE: usize = 4;

/// Replaces sensitive values in a log, which may arrive in pieces, with `***`.
#[derive(Clone, Default)]
pub struct LogMask {
    /// The lines of all values, without white space around them.
    lines: Arc<BTreeSet<Vec<u8>>>,
    /// The end of the log so far, if it is the beginning of a line.
    held: Vec<u8>,
}

impl LogMask {
    /// Masks the lines of these values, without white space around them. Lines of fewer than 4 bytes stay.
    pub fn new(values: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut lines = BTreeSet::new();
        for value in values {
            let found = value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
            lines.extend(found.filter(|line| line.len() >= MIN_LINE).map(<[u8]>::to_vec));
        }
        Self { lines: Arc::new(lines), held: Vec::new() }
    }

    /// Masks the sensitive inputs of a script.
    pub fn of_inputs(spec: &EntrypointSpec) -> Self {
        let sensitive = spec.inputs.iter().filter(|input| input.sensitive);
        Self::new(sensitive.filter_map(|input| input.value.as_ref()?.to_bytes()))
    }

    /// Masks the sensitive outputs of a script by name, in base64.
    pub fn of_outputs(sensitive: &BTreeMap<String, String>) -> Self {
        Self::new(sensitive.values().filter_map(|text| STANDARD.decode(text).ok()))
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Masks the next piece of a log. An empty piece is the end. The beginning of a value at the end of a piece is held
    /// back until the next piece.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let (mut masked, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while let Some(first) = self.held.get(at) {
            let rest = &self.held[at..];
            if !piece.is_empty() && self.is_beginning(rest) {
                break;
            }
            match self.line_at_start(rest) {
                Some(length) => {
                    masked.extend_from_slice(MASK);
                    at += length;
                }
                None => {
                    masked.push(*first);
                    at += 1;
                }
            }
        }
        self.held.drain(..at);
        masked
    }

    /// Returns the end of a whole log as masked text of at most `most` bytes, from the start of a character. Bytes that
    /// are not UTF-8 are replaced. If the log `is_cut` at its start, a value there may be incomplete. Its rest is removed.
    pub fn tail_text(&self, log: &[u8], is_cut: bool, most: usize) -> String {
        let longest = self.lines.iter().map(Vec::len).max().unwrap_or(1);
        let line = log.iter().position(|&byte| byte == b'\n').unwrap_or(log.len());
        let kept = if is_cut { &log[line.min(longest - 1)..] } else { log };
        let inside = |byte: &u8| is_cut && byte & 0b1100_0000 == 0b1000_0000;
        let kept: Vec<u8> = kept.iter().copied().skip_while(inside).collect();
        let mut mask = self.clone();
        end_of(String::from_utf8_lossy(&[mask.push(&kept), mask.push(&[])].concat()).into_owned(), most)
    }

    /// Returns a line of a log, masked. If it `is_cut` at its end, a value there may be incomplete. Its beginning is removed.
    pub(crate) fn line(&self, line: &[u8], is_cut: bool) -> Vec<u8> {
        let mut mask = self.clone();
        let masked = mask.push(line);
        if is_cut { masked } else { [masked, mask.push(&[])].concat() }
    }

    /// Returns true if a line begins with `text` and is longer.
    fn is_beginning(&self, text: &[u8]) -> bool {
        let mut later = self.lines.range::<[u8], _>((Excluded(text), Unbounded));
        later.next().is_some_and(|line| line.starts_with(text))
    }

    /// Returns the length of the longest line with which `text` begins.
    fn line_at_start(&self, mut text: &[u8]) -> Option<usize> {
        loop {
            let line = self.lines.range::<[u8], _>((Unbounded, Included(text))).next_back()?;
            let common = line.iter().zip(text).take_while(|(one, other)| one == other).count();
            if common == line.len() {
                return Some(common);
            }
            // Any other line at the start of the text is in the common part.
            text = &text[..common];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(values: &[&str]) -> LogMask {
        LogMask::new(values.iter().map(|value| value.as_bytes().to_vec()))
    }

    #[test]
    fn values_are_masked_wherever_the_log_is_split() {
        for (values, log, expected) in [
            (&["s3cret"][..], "a s3cret=s3crets3cre", "a ***=***s3cre"),
            (&[], "s3cret", "s3cret"),
            (&["abc", " a\t\n"], "abc a", "abc a"),
            (&["BEGIN\n  key: x\r\n}\n"], "  BEGIN\nkey: x\n}\n", "  ***\n***\n}\n"),
            // The longest value wins, also if a shorter one is complete before it.
            (&["abcd", "abcdefgh", "abcdxyz"], "abcdefg abcdefgh abcdxy abcdxyz", "***efg *** ***xy ***"),
            (&["aaab"], "aaaab", "a***"),
            (&["p\u{e4}ss"], "p\u{e4}ss", "***"),
        ] {
            let log = log.as_bytes();
            for at in 0..log.len() {
                let mut mask = mask(values);
                let masked = [mask.push(&log[..at]), mask.push(&log[at..]), mask.push(&[])].concat();
                assert_eq!(String::from_utf8_lossy(&masked), expected, "split at {at}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_value_at_the_start_of_a_cut_log_is_removed() {
        for (values, log, is_cut, expected) in [
            (&["s3cret"][..], "cret\nrest", true, "\nrest"),
            (&["s3cret"], "cret rest of it", true, "rest of it"),
            (&["s3cret"], "cret", false, "cret"),
            (&[], "cret", true, "cret"),
        ] {
            assert_eq!(mask(values).tail_text(log.as_bytes(), is_cut, 100), expected);
        }
    }
}
