//! The termination message, which describes the end of a script if the relay cannot be reached.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use ebb_protocol::callback::Callback;
use ebb_protocol::entrypoint::{ScriptExit, TERMINATION, TerminationResult, VERSION};
use sha2::{Digest as _, Sha256};

/// A message that fits into [`TERMINATION`] bytes.
#[derive(Debug)]
pub(crate) struct TerminationMessage(TerminationResult);

impl TerminationMessage {
    /// Describes the end. Outputs that do not fit are only in `report`, the body for the relay.
    pub(crate) fn new(ended: &ScriptExit, report: &[u8]) -> Self {
        let whole = TerminationResult {
            v: VERSION,
            result: Callback { log: None, ..ended.result.clone() },
            exit_code: ended.exit_code,
            report: None,
            reported: false,
        };
        if ended.sensitive.is_empty() && text(&whole).len() <= TERMINATION {
            return Self(whole);
        }
        let digest = Sha256::digest(report).iter().map(|byte| format!("{byte:02x}")).collect();
        let result = Callback { outputs: BTreeMap::new(), binary: BTreeMap::new(), ..whole.result };
        Self(TerminationResult { result, report: Some(digest), ..whole })
    }

    pub(crate) fn write(&self, path: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&text(&self.0))
    }

    /// Records in the file that the report was acknowledged. One write replaces the message, so that a kill leaves one
    /// of the two messages.
    pub(crate) fn mark_reported(mut self, path: &str) -> io::Result<()> {
        let before = text(&self.0).len();
        self.0.reported = true;
        let mut text = text(&self.0);
        // `true` is shorter than `false`. Blanks after JSON have no meaning.
        text.resize(before.max(text.len()), b' ');
        OpenOptions::new().write(true).open(path)?.write_all_at(&text, 0)
    }
}

fn text(message: &TerminationResult) -> Vec<u8> {
    // Maps with names as keys can always be encoded.
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ebb_protocol::callback::{CallbackStatus, FailureReason, ReasonCode};
    use ebb_protocol::limits::message;

    use super::*;

    #[test]
    fn a_message_is_within_the_limit() {
        let exit = |result, sensitive| ScriptExit { result, sensitive, exit_code: Some(-1) };
        let outputs = |bytes: usize| {
            let mut result = Callback::new(CallbackStatus::Succeeded);
            result.hold("a", vec![b'"'; bytes]);
            result.log = Some("x".repeat(10_000));
            exit(result, BTreeMap::new())
        };
        let secret = || BTreeMap::from([("s".to_owned(), "c2VjcmV0".to_owned())]);
        // Each character of the longest message takes two bytes in JSON.
        let reason = FailureReason { code: ReasonCode::OutputTooLarge, message: message(&"\"".repeat(5000)) };
        let failed = Callback { reason: Some(reason), ..Callback::new(CallbackStatus::Failed) };
        for (name, exit, output_count, has_digest, code) in [
            ("small", outputs(1000), 1, false, None),
            ("large", outputs(3000), 0, true, None),
            ("sensitive", exit(outputs(10).result, secret()), 0, true, None),
            ("long reason", exit(failed, BTreeMap::new()), 0, false, Some(ReasonCode::OutputTooLarge)),
        ] {
            let message = TerminationMessage::new(&exit, b"body");
            let bytes = text(&message.0);
            assert!(bytes.len() <= TERMINATION, "{name}");
            assert!(!String::from_utf8_lossy(&bytes).contains("c2VjcmV0"), "{name}");
            let result = &message.0.result;
            assert_eq!((result.outputs.len(), message.0.report.is_some()), (output_count, has_digest), "{name}");
            assert_eq!(result.reason.as_ref().map(|reason| reason.code), code, "{name}");
            let file = tempfile::NamedTempFile::new().unwrap();
            let path = file.path().to_str().unwrap();
            message.write(path).unwrap();
            let digest = message.0.report.clone();
            message.mark_reported(path).unwrap();
            let read: TerminationResult = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            assert_eq!((read.reported, &read.report), (true, &digest), "{name}");
            let expected = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5";
            assert!(digest.is_none_or(|digest| digest == expected), "{name}: the SHA-256 of `body`");
        }
    }
}
