//! Sessions of commands with a running server. Each file of the folder `sessions` has the steps of one.

use std::collections::BTreeMap;
use std::env::join_paths;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use ebb_protocol::api::TargetPhase;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::program;
use crate::receiver::{CannedReply, TestReceiver};
use crate::workdir::{CommandResult, WAIT_TIMEOUT, Workdir, environment};

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/documents");

/// A step of a session. `HERE` in a text stands for the working directory, which has the files of [`DOCUMENTS`].
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SessionStep {
    /// Texts of files that are written before the line runs.
    files: BTreeMap<String, String>,
    /// Phases that sandboxes reach before the line runs.
    reaches: BTreeMap<String, TargetPhase>,
    /// Status and body with which the server at `SERVICE` responds from now on, by the line of a request.
    service: BTreeMap<String, (u16, Value)>,
    /// A line of the shell, with the repository as `ROOT`, the address of the server as `URL`, and `OTLP` if `ebb` has the
    /// exporter of traces.
    sh: String,
    code: i32,
    output: Option<String>,
    /// Parts of the standard output.
    shows: Vec<String>,
    /// The standard error.
    messages: Option<String>,
    /// Parts of the standard error.
    says: Vec<String>,
    /// Texts that are in neither of them.
    lacks: Vec<String>,
    /// Values in the printed JSON, or in its last line, by their pointers. A value that is absent is `null`.
    json: BTreeMap<String, Value>,
    /// Variables of the lines of later steps, with the pointers to their values in the printed JSON.
    keep: BTreeMap<String, String>,
    /// True if all scripts end after the line.
    idle: bool,
}

impl SessionStep {
    async fn run(&self, workdir: &Workdir, service: &TestReceiver, kept: &mut BTreeMap<String, String>) {
        self.files.iter().for_each(|(name, text)| drop(workdir.write(name, text)));
        for (line, (status, body)) in &self.service {
            service.always(line, CannedReply::status(*status).with(body.clone()));
        }
        for (name, phase) in &self.reaches {
            workdir.reaches(name, *phase).await;
        }
        let result = shell(workdir, &self.sh, kept).await;
        let CommandResult { code, stdout, stderr } = &result;
        let case = format!("{}: {result:#?}", self.sh);
        assert_eq!(*code, Some(self.code), "{case}");
        assert_eq!(stdout, self.output.as_ref().unwrap_or(stdout), "{case}");
        assert_eq!(stderr, self.messages.as_ref().unwrap_or(stderr), "{case}");
        assert!(self.shows.iter().all(|text| stdout.contains(text)), "{:?}: {case}", self.shows);
        assert!(self.says.iter().all(|text| stderr.contains(text)), "{:?}: {case}", self.says);
        assert!(!self.lacks.iter().any(|text| stdout.contains(text) || stderr.contains(text)), "{case}");
        let last = || serde_json::from_str(stdout.lines().last().unwrap_or_default());
        let printed: Value = serde_json::from_str(stdout).or_else(|_| last()).unwrap_or_default();
        for (pointer, value) in &self.json {
            assert_eq!(printed.pointer(pointer).unwrap_or(&Value::Null), value, "{pointer} of {case}");
        }
        let values = self.keep.iter().map(|(name, pointer)| (name.clone(), printed.pointer(pointer)));
        kept.extend(values.map(|(name, value)| (name, value.and_then(Value::as_str).unwrap().to_owned())));
        if self.idle {
            workdir.no_script_runs().await;
        }
    }
}

async fn shell(workdir: &Workdir, line: &str, variables: &BTreeMap<String, String>) -> CommandResult {
    let path = join_paths([program::ebb().parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let mut sh = Command::new("sh");
    sh.args(["-c", line]).current_dir(workdir.path()).stdin(Stdio::null()).kill_on_drop(true);
    sh.env_clear().envs(environment()).env("PATH", path).envs(variables);
    sh.env("XDG_CONFIG_HOME", workdir.path().join("config"));
    let ended = tokio::time::timeout(WAIT_TIMEOUT, sh.output()).await;
    let output = ended.unwrap_or_else(|_| panic!("`{line}` does not end")).unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    CommandResult { code: output.status.code(), stdout, stderr }
}

/// Runs a session. Without a server, its commands start their own.
async fn run_all(workdir: &Workdir, steps: &str, has_server: bool) {
    let dev = if has_server { Some(workdir.dev().await) } else { None };
    let here = |text: &str| text.replace("HERE", workdir.path().to_str().unwrap());
    for document in fs::read_dir(DOCUMENTS).unwrap().map(Result::unwrap) {
        workdir.write(document.file_name().to_str().unwrap(), &here(&fs::read_to_string(document.path()).unwrap()));
    }
    let steps: Vec<SessionStep> = serde_saphyr::from_str(&here(steps)).unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..").to_owned();
    let has_exporter = cfg!(feature = "otlp").to_string();
    let mut kept = BTreeMap::from([("ROOT".to_owned(), root), ("OTLP".to_owned(), has_exporter)]);
    kept.extend(dev.iter().map(|dev| ("URL".to_owned(), dev.url.clone())));
    let service = TestReceiver::start().await;
    kept.insert("SERVICE".to_owned(), service.url().to_owned());
    for step in steps {
        step.run(workdir, &service, &mut kept).await;
    }
    if let Some(dev) = dev {
        dev.stop().await;
    }
}

macro_rules! sessions {
    ($has_server:literal: $($name:ident)*) => {$(
        #[tokio::test]
        async fn $name() {
            run_all(&Workdir::new(), include_str!(concat!("sessions/", stringify!($name), ".yaml")), $has_server).await;
        }
    )*};
}

sessions! { true:
    a_deletion_names_the_targets_that_need_a_document a_dry_run_changes_nothing a_dry_run_of_a_sandbox_shows_its_effect
    a_failure_of_post_start_leaves_the_environment a_forced_deletion_withdraws_the_instance_that_waits
    a_job_needs_each_documented_scope a_job_starts_and_deletes_a_sandbox a_job_waits_and_reads_the_environment
    a_missing_secret_is_shown_in_the_document a_ttl_that_has_ended_is_reported an_earlier_document_is_applied_again
    an_event_is_signed_with_the_secret_of_the_server an_input_is_never_executed
    an_instance_that_waits_does_not_show_values_of_the_present_one an_upgrade_stops_after_a_failed_batch
    each_command_up_to_a_repair_is_suggested_by_the_one_before followed_logs_contain_each_line_once
    one_call_stores_documents_before_those_that_name_them one_command_repairs_every_stuck_sandbox
    selected_sandboxes_get_another_version_of_a_plugin several_sandboxes_are_changed_by_one_command
    the_highest_version_of_each_plugin_is_listed the_page_of_an_unknown_sandbox_is_an_error
    the_state_of_a_parent_folder_selects_the_server wrong_lines_do_not_end_the_server
}

/// `ebb dev` runs with an issuer.
#[tokio::test]
async fn a_person_is_the_same_everywhere() {
    run_all(&Workdir::with(&["--issuer=0"]), include_str!("sessions/a_person_is_the_same_everywhere.yaml"), true).await;
}

sessions! { false:
    a_closed_standard_output_does_not_stop_the_deletion a_link_to_the_page_of_the_sandbox_is_printed
    a_lost_table_is_reported a_low_limit_of_open_files_delays_scripts a_missing_relay_program_is_reported
    a_sandbox_outlives_the_command_and_versions_are_immutable
    a_sandbox_that_is_not_gone_keeps_its_state a_single_unit_runs an_agent_uses_the_server_of_its_folder
    closed_outputs_do_not_change_the_exit_code instances_of_the_signadot_template_end_after_a_failure_at_each_line
    instances_of_the_template_end_after_a_failure_at_each_line interrupts_delete_the_sandbox_or_stop_the_command
    living_targets_keep_their_backend
}
