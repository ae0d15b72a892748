//! What everyone who runs scripts decides in the same way and says in the same words, on a machine or in a pod.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::callback::{Callback, CallbackStatus, ReasonCode};
use crate::limits::{CALLBACK_BODY, LAMBDA_EVENT, LOG_TAIL, OUTPUT, OUTPUTS, lambda_event_size};
use crate::relay::ScriptOutput;

/// Bytes of one environment variable with its name: Linux's `MAX_ARG_STRLEN`, less `=` and the final NUL.
pub const VARIABLE: usize = (128 << 10) - 2;

/// What a script without a first line is told that it lacks.
pub const FIRST_LINE_EXPECTED: &str = "its first line must name one, such as #!/bin/sh";

/// Who runs a script, as its first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    pub path: &'a str,
    /// All that follows: one argument, as the kernel hands it on.
    pub argument: Option<&'a str>,
}

impl<'a> Interpreter<'a> {
    /// Reads the first line. `None`: it has no `#!`.
    ///
    /// # Errors
    /// When the script cannot be meant as it is written; says what is wrong with it.
    pub fn of(text: &'a str) -> Result<Option<Self>, String> {
        if text.contains('\0') {
            return Err("the script has NUL bytes".to_owned());
        }
        let Some(line) = text.strip_prefix("#!") else {
            if text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).starts_with("#!") {
                return Err(format!(
                    "the script has no interpreter: there is something before its `#!`; {FIRST_LINE_EXPECTED}"
                ));
            }
            return Ok(None);
        };
        let line = line.split('\n').next().unwrap_or_default();
        if line.ends_with('\r') {
            return Err(format!(
                "the script's lines end with CR LF, so that its interpreter would be {:?}: save it with LF alone",
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

    /// What `env` is asked to find in `PATH`, where the interpreter is `env`.
    pub fn program(&self) -> Option<&'a str> {
        if !self.path.ends_with("/env") {
            return None;
        }
        let mut words = self.argument?.split([' ', '\t']).filter(|word| !word.is_empty());
        let program = words.find(|word| *word != "-S" && !word.contains('='))?;
        (!program.starts_with('-') && !program.contains('/')).then_some(program)
    }
}

/// Whether an environment can carry `value` as `name`.
///
/// # Errors
/// When it cannot; says why.
pub fn check_variable(name: &str, value: &[u8]) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("this is no name of an environment variable".to_owned());
    }
    if value.contains(&0) {
        return Err("an environment variable cannot carry NUL bytes: give it a path instead".to_owned());
    }
    if name.len() + value.len() > VARIABLE {
        let size = value.len();
        return Err(format!(
            "an environment variable carries at most {VARIABLE} bytes and this has {size}: give it a path instead"
        ));
    }
    Ok(())
}

/// The last `most` bytes of `text`, from a character's start.
pub fn end_of(mut text: String, most: usize) -> String {
    if text.len() > most {
        text = text.split_off(text.ceil_char_boundary(text.len() - most));
    }
    text
}

/// Why a declared output is not one, after the script has ended with 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputError {
    /// There is no file.
    Missing,
    /// What is there is no file that can be read: what it is, or why not.
    Invalid(String),
    /// The file has this many bytes, more than [`OUTPUT`].
    TooLarge(u64),
    /// With this output they are all together this many bytes, more than [`OUTPUTS`].
    TooManyBytes(usize),
}

impl OutputError {
    /// The bytes of an output's file, which was opened without waiting: a FIFO has no writer any more.
    ///
    /// # Errors
    /// When it is no file, has more bytes than [`OUTPUT`], or cannot be read.
    pub fn or_bytes(file: File) -> Result<Vec<u8>, Self> {
        let unreadable = |error: io::Error| Self::Invalid(format!("cannot be read: {error}"));
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(Self::Invalid(format!("is a {}, not a file", kind(&about))));
        }
        if about.len() > OUTPUT as u64 {
            return Err(Self::TooLarge(about.len()));
        }
        let mut bytes = Vec::new();
        // It may grow.
        file.take(OUTPUT as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > OUTPUT { Err(Self::TooLarge(bytes.len() as u64)) } else { Ok(bytes) }
    }

    /// The failure of the unit.
    pub fn failure(&self, output: &ScriptOutput) -> Callback {
        let (name, path) = (&output.name, &output.path);
        let (code, message) = match self {
            Self::Missing => (
                ReasonCode::OutputMissing,
                format!("output {name:?}: the script has ended with 0 without writing {path}"),
            ),
            Self::Invalid(why) => (ReasonCode::OutputInvalid, format!("output {name:?}: {path} {why}")),
            Self::TooLarge(size) => (
                ReasonCode::OutputTooLarge,
                format!("output {name:?}: {path} has {size} bytes; an output may have {OUTPUT}"),
            ),
            Self::TooManyBytes(total) => (
                ReasonCode::OutputTooLarge,
                format!("the outputs up to {name:?} have {total} bytes; all outputs of a unit may have {OUTPUTS}"),
            ),
        };
        Callback::failed(code, &message)
    }
}

fn kind(about: &Metadata) -> &'static str {
    let kind = about.file_type();
    if kind.is_dir() {
        "folder"
    } else if kind.is_fifo() {
        "FIFO"
    } else {
        "device"
    }
}

impl Callback {
    /// Adds an output with its bytes untouched: text if they are UTF-8, else base64.
    pub fn hold(&mut self, name: &str, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => drop(self.outputs.insert(name.to_owned(), text.into())),
            Err(error) => drop(self.binary.insert(name.to_owned(), STANDARD.encode(error.into_bytes()))),
        }
    }

    /// How a work has ended, as the control plane always takes it, whatever a script has put into it: of this version, an
    /// end, and not larger than [`CALLBACK_BODY`], nor than Lambda passes on. Cuts the log, and in the end gives up on the outputs: text with many
    /// control characters and binary outputs grow on their way into JSON. Without outputs the whole tail fits, whatever
    /// is in it. A success that cannot be read is a failure.
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
            let reason = self.reason.map(|reason| Self::failed(reason.code, &reason.message));
            let failed =
                reason.unwrap_or_else(|| Self::failed(ReasonCode::Failed, "the unit says that it failed, and not why"));
            self = Self { log: self.log, duration_ms: self.duration_ms, retry_after: self.retry_after, ..failed };
        }
        let whole = self.log.clone();
        let mut room = LOG_TAIL;
        while !fits(&self) && room > 1024 {
            room /= 2;
            self.log = self.log.map(|log| end_of(log, room));
        }
        if fits(&self) || self.status != CallbackStatus::Succeeded {
            return self;
        }
        let json = json(&self);
        let (bytes, in_event) = (json.len(), lambda_event_size(&json));
        let message = format!(
            "the outputs have {bytes} bytes when written as JSON, of which {CALLBACK_BODY} is the limit, and {in_event} with \
             their quotation marks and backslashes counted twice, of which {MOST} is"
        );
        Self { log: whole, duration_ms: self.duration_ms, ..Self::failed(ReasonCode::OutputTooLarge, &message) }
    }
}

/// A result as it is [`lambda_event_size`]: in a poll there is more beside it.
const MOST: usize = LAMBDA_EVENT - (64 << 10);

impl Callback {
    /// Whether each output has one value.
    fn readable(&self) -> Result<(), String> {
        for (name, text) in &self.binary {
            // What cannot be decoded may be anything, so it is not repeated.
            if STANDARD.decode(text).is_err() {
                return Err(format!("output {name:?} is no base64"));
            }
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
    use super::*;

    #[test]
    fn first_lines() {
        for (text, expected) in [
            ("#!/bin/sh\ntrue", Ok(Some(("/bin/sh", None, None)))),
            ("#! /bin/sh -e -u \ntrue", Ok(Some(("/bin/sh", Some("-e -u"), None)))),
            ("#!/usr/bin/env sh\n", Ok(Some(("/usr/bin/env", Some("sh"), Some("sh"))))),
            ("#!/bin/env -S A=b sh -e\n", Ok(Some(("/bin/env", Some("-S A=b sh -e"), Some("sh"))))),
            ("#!/bin/env /bin/sh\n", Ok(Some(("/bin/env", Some("/bin/sh"), None)))),
            ("#!/bin/env -i sh", Ok(Some(("/bin/env", Some("-i sh"), None)))),
            ("true", Ok(None)),
            ("", Ok(None)),
            ("#!\n", Err("the script has no interpreter; its first line must name one, such as #!/bin/sh")),
            ("#! \t\n", Err("the script has no interpreter; its first line must name one, such as #!/bin/sh")),
            (
                "\u{feff}#!/bin/sh\n",
                Err("the script has no interpreter: there is something before its `#!`; its first line must name \
                     one, such as #!/bin/sh"),
            ),
            (
                "#! /bin/sh\r\ntrue\r\n",
                Err("the script's lines end with CR LF, so that its interpreter would be \"/bin/sh\\r\": save it \
                     with LF alone"),
            ),
            ("#!sh\n", Err("the script's interpreter \"sh\" is not an absolute path")),
            ("#!/bin/sh\n\0", Err("the script has NUL bytes")),
        ] {
            let found = Interpreter::of(text).map(|found| found.map(|it| (it.path, it.argument, it.program())));
            assert_eq!(found, expected.map_err(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn variables() {
        for (name, value, expected) in [
            ("A", vec![b'x'; VARIABLE - 1], Ok(())),
            ("A", vec![b'x'; VARIABLE], Err("at most 131070 bytes and this has 131070: give it a path")),
            ("A", vec![0], Err("cannot carry NUL bytes: give it a path")),
            ("A=B", vec![], Err("no name of an environment variable")),
            ("", vec![], Err("no name of an environment variable")),
        ] {
            match (check_variable(name, &value), expected) {
                (Ok(()), Ok(())) => {}
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => panic!("{name:?}: {found:?}, not {expected:?}"),
            }
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
        // In an event `"` is `\\\"`.
        let room = MOST / 4;
        result.hold("quotes", vec![b'"'; room - 4_000]);
        result.log = Some("\"".repeat(LOG_TAIL));
        let cut = result.clone().fit();
        assert_eq!((&cut.outputs, cut.status), (&result.outputs, CallbackStatus::Succeeded));
        assert!(event(&cut) <= LAMBDA_EVENT && serde_json::to_vec(&cut).unwrap().len() < CALLBACK_BODY);
        result.hold("more", vec![b'"'; 4_000]);
        let failed = result.fit();
        assert_eq!(failed.reason.unwrap().code, ReasonCode::OutputTooLarge);
    }

    #[test]
    fn what_a_script_reports_can_be_taken() {
        let json = |text: &str| serde_json::from_str::<Callback>(text).unwrap();
        let large = "\u{1}".repeat(CALLBACK_BODY);
        let mut failed = json(r#"{"v": 7, "status": "failed", "binary": {"a": "!"}, "progress": "x"}"#);
        (failed.log, failed.outputs) = (Some(large.clone()), [("a".to_owned(), large.clone().into())].into());
        let mut wordy = Callback::failed(ReasonCode::Exit, "");
        wordy.reason.as_mut().unwrap().message = large;
        for (given, code) in [
            (json(r#"{"status": "succeeded", "binary": {"a": "!"}}"#), Some(ReasonCode::OutputInvalid)),
            (
                json(r#"{"status": "succeeded", "outputs": {"a": 1}, "binary": {"a": ""}}"#),
                Some(ReasonCode::OutputInvalid),
            ),
            (json(r#"{"status": "again"}"#), Some(ReasonCode::Failed)),
            (failed, Some(ReasonCode::Failed)),
            (wordy, Some(ReasonCode::Exit)),
            (json(r#"{"v": 2, "status": "succeeded", "outputs": {"a": 1}, "binary": {"b": ""}}"#), None),
        ] {
            let fit = given.fit();
            assert!(serde_json::to_vec(&fit).unwrap().len() <= CALLBACK_BODY);
            assert_eq!((fit.v, fit.reason.as_ref().map(|it| it.code)), (1, code));
            assert_eq!(fit.status == CallbackStatus::Succeeded, code.is_none());
            assert!(fit.outputs.is_empty() == code.is_some() && fit.readable().is_ok());
        }
    }
}
