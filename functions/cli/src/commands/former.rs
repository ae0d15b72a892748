//! Former commands: groups with the same verbs for each kind.

use clap::error::ErrorKind;

use super::kinds::KINDS;
use crate::exit::CliError;

/// The verbs of the former groups, and the commands that have taken their place. `KIND` and `KINDS` stand for the name of
/// the group.
const FORMER: [(&str, &str); 11] = [
    ("apply", "ebb apply -f FILE"),
    ("list", "ebb get KINDS"),
    ("get", "ebb get KIND NAME"),
    ("delete", "ebb delete KIND NAME"),
    ("validate", "ebb validate FILE"),
    ("graph", "ebb graph FILE"),
    ("versions", "ebb get KIND NAME --all"),
    ("history", "ebb history NAME"),
    ("env", "ebb env NAME"),
    ("wait", "ebb wait NAME"),
    ("event", "ebb event NAME EVENT"),
];

/// Returns the error for a former command, which names the present one, or `None` for another wrong command line.
pub(crate) fn refusal(error: &clap::Error, words: &[String]) -> Option<CliError> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    words.windows(2).find_map(|pair| {
        let [group, verb] = [pair[0].as_str(), pair[1].as_str()];
        let (kind, kinds) = match group {
            "sandbox" => ("sandbox", "sandboxes"),
            "rp" | "resourceplugin" => ("plugin", "plugins"),
            group => KINDS.iter().find(|kind| kind.name == group).map(|kind| (kind.name, kind.plural))?,
        };
        let (_, present) = FORMER.iter().find(|(former, _)| *former == verb)?;
        let present = present.replace("KINDS", kinds).replace("KIND", kind);
        Some(CliError::broken(format!("`ebb {group} {verb}` is not a command any more")).with_hint(present))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use ebb_documents::diagnostic::DiagnosticStyle;

    use super::*;
    use crate::commands::EbbCli;

    #[test]
    fn each_former_command_names_the_present_one() {
        let refused = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = EbbCli::try_parse_from(std::iter::once("ebb").chain(line.split(' '))).unwrap_err();
            refusal(&error, &words).map(|refusal| refusal.text(DiagnosticStyle::Plain)).unwrap_or_default()
        };
        for group in ["sandbox", "plugin", "rp", "source", "connection", "subscription"] {
            for (verb, _) in FORMER {
                assert!(refused(&format!("{group} {verb}")).contains("  help: ebb "), "{group} {verb}");
            }
        }
        assert!(refused("--server http://a sandbox list --phase failed").ends_with("help: ebb get sandboxes\n"));
        assert!(refused("rp versions db").ends_with("help: ebb get plugin NAME --all\n"));
    }
}
