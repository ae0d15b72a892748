//! The text that a sender signs beside the body, and the time of its signature.

use std::borrow::Cow;

use ebb_engine::{Millis, SignedPiece, Timestamp};
use http::HeaderMap;

use crate::sign::{SignatureError, malformed, single};

/// Parts of a list that are compared. A rotation at the sender uses two signatures.
const MAX_SIGNATURES: usize = 8;
/// Times at or above are milliseconds, times below are seconds. As seconds, it is in the year 5138.
const FIRST_MILLISECONDS: u64 = 100_000_000_000;

/// What a sender signs. The default is the body alone, without a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(default))]
pub struct SignedText {
    /// Empty for the body alone.
    pub pieces: Vec<SignedPiece>,
    pub timestamp: Option<SignedTime>,
}

/// The place of the time of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct SignedTime {
    /// In lower case.
    pub header: String,
    /// The name of the time in a header such as `t=1700000000,v1=…`, which has signatures too.
    pub field: Option<String>,
    /// The greatest difference from our clock, in milliseconds.
    pub tolerance: u64,
}

/// The fields of the header with the signature, and the signed bytes.
type SignedPayload<'a> = (Vec<(String, String)>, Cow<'a, [u8]>);

impl SignedText {
    /// Returns the signed bytes of a request.
    ///
    /// # Errors
    /// Returns an error if a header is missing, or if the time differs too much from `now`.
    pub(crate) fn bytes<'a>(
        &self,
        headers: &HeaderMap,
        body: &'a [u8],
        now: Timestamp,
    ) -> Result<Cow<'a, [u8]>, SignatureError> {
        let time = self.timestamp.as_ref().map_or(Ok(""), |time| time.checked(headers, now))?;
        self.joined(time, body, |name| single(headers, name))
    }

    fn joined<'a, 'h>(
        &self,
        time: &str,
        body: &'a [u8],
        header: impl Fn(&str) -> Result<&'h str, SignatureError>,
    ) -> Result<Cow<'a, [u8]>, SignatureError> {
        if self.pieces.is_empty() {
            return Ok(Cow::Borrowed(body));
        }
        let mut signed = Vec::with_capacity(body.len() + 100);
        for piece in &self.pieces {
            signed.extend_from_slice(match piece {
                SignedPiece::Literal(text) => text.as_bytes(),
                SignedPiece::Body => body,
                SignedPiece::Timestamp => time.as_bytes(),
                SignedPiece::Header(name) => header(name)?.as_bytes(),
            });
        }
        Ok(Cow::Owned(signed))
    }

    pub(crate) fn signatures<'a>(&self, given: &'a str) -> Vec<&'a str> {
        match self.timestamp.as_ref().and_then(|time| time.field.as_ref()) {
            Some(_) => given.split(',').map(str::trim).take(MAX_SIGNATURES).collect(),
            None => vec![given],
        }
    }

    /// Returns the headers that a sender adds, and the signed bytes. Headers other than that of the time get the ID of the
    /// delivery.
    pub(crate) fn sent<'a>(
        &self,
        id: &str,
        body: &'a [u8],
        now: Timestamp,
    ) -> Result<SignedPayload<'a>, SignatureError> {
        let seconds = (now.0 / 1000).to_string();
        let time = self.timestamp.iter().map(|time| {
            let name = time.field.as_ref().map_or_else(String::new, |field| format!("{field}="));
            (time.header.clone(), name + &seconds)
        });
        let others = self.pieces.iter().filter_map(|piece| match piece {
            SignedPiece::Header(name) => Some((name.clone(), id.to_owned())),
            _ => None,
        });
        Ok((time.chain(others).collect(), self.joined(&seconds, body, |_| Ok(id))?))
    }
}

impl SignedTime {
    fn checked<'a>(&self, headers: &'a HeaderMap, now: Timestamp) -> Result<&'a str, SignatureError> {
        let given = single(headers, &self.header)?;
        let value = |field: &str| given.split(',').find_map(|part| part.trim().strip_prefix(field)?.strip_prefix('='));
        let given = self.field.as_deref().map_or(Some(given), value);
        let milliseconds = |text: &str| {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            match whole.parse::<u64>().ok().filter(|_| fraction.bytes().all(|byte| byte.is_ascii_digit())) {
                Some(number) if number < FIRST_MILLISECONDS => Some(number * 1000),
                Some(number) => Some(number),
                None => u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok(),
            }
        };
        let (given, time) = given
            .and_then(|given| Some((given, milliseconds(given)?)))
            .ok_or_else(|| malformed(&self.header, "the time as a number of seconds since 1970, or as RFC 3339"))?;
        match time.abs_diff(now.0) <= self.tolerance {
            true => Ok(given),
            false => Err(SignatureError::Tolerance { header: self.header.clone(), tolerance: Millis(self.tolerance) }),
        }
    }
}
