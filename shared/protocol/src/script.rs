//! Rules and texts that all executors of scripts share, both on a machine and in a pod.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::callback::{Callback, CallbackStatus, ReasonCode};
use crate::limits::{CALLBACK_BODY, LAMBDA_EVENT, LOG_TAIL, lambda_event_size};

/// The maximum size of an environment variable with its name in bytes: Linux's `MAX_ARG_STRLEN` without `=` and the
/// final NUL.
pub const VARIABLE: usize = (128 << 10) - 2;

/// The end of errors about a script without an interpreter.
pub const FIRST_LINE_EXPECTED: &str = "its first line must name one, such as #!/bin/sh";

/// The interpreter in the first line of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    pub path: &'a str,
    /// The rest of the line, which the kernel passes as one argument.
    pub argument: Option<&'a str>,
}

impl<'a> Interpreter<'a> {
    /// Parses the first line. Returns `None` without `#!`, and an error for a script that cannot run as written.
    pub fn of(text: &'a str) -> Result<Option<Self>, String> {
        if text.contains('\0') {
            return Err("the script has NUL bytes".to_owned());
        }
        let Some(line) = text.strip_prefix("#!") else {
            if text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).starts_with("#!") {
                return Err(format!(
                    "the script has no interpreter: its `#!` is not at the start; {FIRST_LINE_EXPECTED}"
                ));
            }
            return Ok(None);
        };
        let line = line.split('\n').next().unwrap_or_default();
        if line.ends_with('\r') {
            return Err(format!(
                "the lines of the script end with CR LF, so that its interpreter would be {:?}: save it with LF",
                line.trim_start_matches([' ', '\t'])
            ));
        }
        let line = line.trim_matches([' ', '\t']);
        let (path, argument) = match line.split_once([' ', '\t']) {
            Some((path, argument)) => (path, Some(argument.trim_start_matches([' ', '\t']))),
            None => (line, None),
        };
        if path.is_empty() {
            return Err(format!("the script has no interpreter; {FIRST_LINE_EXPECTED}"));
        }
        if !path.starts_with('/') {
            return Err(format!("the script's interpreter {path:?} is not an absolute path"));
        }
        Ok(Some(Self { path, argument }))
    }

    /// Returns the program that `env` looks up in `PATH`.
    pub fn program(&self) -> Option<&'a str> {
        if !self.path.ends_with("/env") {
            return None;
        }
        let mut words = self.argument?.split([' ', '\t']).filter(|word| !word.is_empty());
        let program = words.find(|word| *word != "-S" && !word.contains('='))?;
        (!program.starts_with('-') && !program.contains('/')).then_some(program)
    }
}

/// Checks that an environment variable can hold a value.
pub fn check_variable(name: &str, value: &[u8]) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("this is not a name of an environment variable".to_owned());
    }
    if value.contains(&0) {
        return Err("an environment variable cannot hold NUL bytes: use a path instead".to_owned());
    }
    if name.len() + value.len() > VARIABLE {
        let size = value.len();
        return Err(format!(
            "an environment variable can hold {VARIABLE} bytes, but this value has {size}: use a path instead"
        ));
    }
    Ok(())
}

/// Returns the last `most` bytes of `text`, from the start of a character.
pub fn end_of(mut text: String, most: usize) -> String {
    if text.len() > most {
        text = text.split_off(text.ceil_char_boundary(text.len() - most));
    }
    text
}

/// The limit of a result by [`lambda_event_size`]. A poll has further content.
const MOST: usize = LAMBDA_EVENT - (64 << 10);

impl Callback {
    /// Adds an output: as text if the bytes are UTF-8, as base64 otherwise.
    pub fn hold(&mut self, name: &str, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => drop(self.outputs.insert(name.to_owned(), text.into())),
            Err(error) => drop(self.binary.insert(name.to_owned(), STANDARD.encode(error.into_bytes()))),
        }
    }

    /// Returns a result that the control plane accepts, whatever the script reported.
    ///
    /// The result has this version and an end, and fits into [`CALLBACK_BODY`] and into a Lambda event. The log is
    /// shortened first. If the outputs are too large even without a log, the result is a failure with the whole log.
    /// Text with many control characters and binary outputs grow in JSON. An unreadable success becomes a failure.
    #[must_use]
    pub fn fit(mut self) -> Self {
        let json = |result: &Self| serde_json::to_vec(result).unwrap_or_default();
        let fits = |result: &Self| {
            let json = json(result);
            json.len() <= CALLBACK_BODY && lambda_event_size(&json) <= MOST
        };
        self.v = 1;
        self.progress = None;
        self.log = self.log.map(|log| end_of(log, LOG_TAIL));
        if self.status == CallbackStatus::Succeeded {
            if let Err(why) = self.readable() {
                let failed = Self::failed(ReasonCode::OutputInvalid, &why);
                self = Self { log: self.log, duration_ms: self.duration_ms, ..failed };
            }
        } else {
            let Self { reason, log, duration_ms, retry_after, objects, .. } = self;
            let reason = reason.map(|reason| Self::failed(reason.code, &reason.message));
            let failed = reason.unwrap_or_else(|| Self::failed(ReasonCode::Failed, "the unit failed without a reason"));
            self = Self { log, duration_ms, retry_after, objects, ..failed };
        }
        let full_log = self.log.clone();
        let mut limit = LOG_TAIL;
        while !fits(&self) && limit > 1024 {
            limit /= 2;
            self.log = self.log.map(|log| end_of(log, limit));
        }
        if fits(&self) || self.status != CallbackStatus::Succeeded {
            return self;
        }
        let json = json(&self);
        let (bytes, in_event) = (json.len(), lambda_event_size(&json));
        let message = format!(
            "the outputs have {bytes} bytes as JSON; the limit is {CALLBACK_BODY}. With \
             quotation marks and backslashes counted twice, they have {in_event}; the limit is {MOST}"
        );
        Self { log: full_log, duration_ms: self.duration_ms, ..Self::failed(ReasonCode::OutputTooLarge, &message) }
    }

    /// Checks that each output has one valid value.
    fn readable(&self) -> Result<(), String> {
        // The error does not contain the text, because a script can report any text.
        if let Some((name, _)) = self.binary.iter().find(|(_, text)| STANDARD.decode(text).is_err()) {
            return Err(format!("output {name:?} is not base64"));
        }
        let names = self.outputs.keys().chain(self.binary.keys()).chain(self.secrets.keys());
        let mut seen = BTreeSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            Some(twice) => Err(format!("output {twice:?} is given twice")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::rows;

    #[test]
    fn first_lines() {
        for (text, expected) in rows::<(String, Value)>("first_lines") {
            let found = Interpreter::of(&text).map(|found| found.map(|it| (it.path, it.argument, it.program())));
            assert_eq!(json!(found), expected, "{text:?}");
        }
    }

    #[test]
    fn variables() {
        for (name, value, count, refusal) in rows::<(String, String, usize, String)>("variables") {
            let refused = check_variable(&name, value.repeat(count).as_bytes()).err().unwrap_or_default();
            assert!(refused.contains(&refusal) && refused.is_empty() == refusal.is_empty(), "{name:?}: {refused}");
        }
    }

    #[test]
    fn a_result_fits_into_a_callback() {
        let mut result = Callback::new(CallbackStatus::Succeeded);
        result.hold("text", vec![b'x'; CALLBACK_BODY - LOG_TAIL]);
        result.hold("bytes", vec![0xff, 0]);
        assert_eq!(result.binary["bytes"], "/wA=");
        // Each byte of such a log is six in JSON.
        result.log = Some("\u{1}".repeat(LOG_TAIL));
        let cut = result.clone().fit();
        assert_eq!((&cut.outputs, cut.status), (&result.outputs, CallbackStatus::Succeeded));
        assert!(serde_json::to_vec(&cut).unwrap().len() <= CALLBACK_BODY && cut.log.unwrap().len() > 1024);
        result.hold("more", vec![1; LOG_TAIL]);
        let failed = result.fit();
        assert_eq!(failed.log.unwrap().len(), LOG_TAIL);
        assert_eq!(failed.reason.unwrap().code, ReasonCode::OutputTooLarge);
        assert!(failed.outputs.is_empty() && failed.binary.is_empty());
    }

    /// Lambda's event holds a body as a string.
    #[test]
    fn a_result_fits_into_an_event() {
        let event =
            |result: &Callback| serde_json::json!({"body": serde_json::to_string(result).unwrap()}).to_string().len();
        let mut result = Callback::new(CallbackStatus::Succeeded);
        // In an event, `"` becomes `\\\"`.
        result.hold("quotes", vec![b'"'; MOST / 4 - 4_000]);
        result.log = Some("\"".repeat(LOG_TAIL));
        let cut = result.clone().fit();
        assert_eq!((&cut.outputs, cut.status), (&result.outputs, CallbackStatus::Succeeded));
        assert!(event(&cut) <= LAMBDA_EVENT && serde_json::to_vec(&cut).unwrap().len() < CALLBACK_BODY);
        result.hold("more", vec![b'"'; 4_000]);
        assert_eq!(result.fit().reason.unwrap().code, ReasonCode::OutputTooLarge);
    }

    #[test]
    fn results_of_scripts_are_made_acceptable() {
        let large = "\u{1}".repeat(CALLBACK_BODY);
        let failed = r#"{"v": 7, "status": "failed", "binary": {"a": "!"}, "progress": "x"}"#;
        let mut failed: Callback = serde_json::from_str(failed).unwrap();
        (failed.log, failed.outputs) = (Some(large.clone()), [("a".to_owned(), large.clone().into())].into());
        let mut wordy = Callback::failed(ReasonCode::Exit, "");
        wordy.reason.as_mut().unwrap().message = large;
        let mut cases = rows::<(Callback, Option<ReasonCode>)>("results_of_scripts_are_made_acceptable");
        cases.extend([(failed, Some(ReasonCode::Failed)), (wordy, Some(ReasonCode::Exit))]);
        for (given, code) in cases {
            let fit = given.fit();
            assert!(serde_json::to_vec(&fit).unwrap().len() <= CALLBACK_BODY);
            assert_eq!((fit.v, fit.reason.as_ref().map(|it| it.code)), (1, code));
            assert_eq!(fit.status == CallbackStatus::Succeeded, code.is_none());
            assert!(fit.outputs.is_empty() == code.is_some() && fit.readable().is_ok());
        }
    }
}
