//! The commands that texts name.

/// Returns a target as the arguments of a command. Without `--kind`, a command is about the sandbox of the name.
pub fn target_arguments(kind: &str, name: &str) -> String {
    match kind {
        "sandbox" => name.to_owned(),
        kind => format!("{name} --kind {kind}"),
    }
}

pub const APPLY: &str = "ebb apply -f FILE";
pub const LIST_CLUSTERS: &str = "ebb cluster list";

/// Declares functions that return a command. `target` is the result of [`target_arguments`].
macro_rules! commands {
    ($($name:ident($($argument:ident),+) => $text:literal;)+) => {
        $(pub fn $name($($argument: &str),+) -> String {
            format!($text)
        })+
    };
}

commands! {
    get(kind, name) => "ebb get {kind} {name}";
    why(target) => "ebb why {target}";
    logs(target, unit) => "ebb logs {target} --unit {unit}";
    retry(target) => "ebb retry {target}";
    retry_with(target, plugin) => "ebb retry {target} --plugin {plugin}";
    retry_with_file(target) => "ebb retry {target} -f FILE";
    upgrade(plugin, target) => "ebb plugin upgrade {plugin} {target}";
    delete(kind, name) => "ebb delete {kind} {name}";
    delete_protected(kind, name) => "ebb delete {kind} {name} --allow-protected";
    force_delete(kind, name) => "ebb delete {kind} {name} --force --reason WHY";
    force_complete(target, unit) => "ebb unit force-complete {target} {unit} --reason WHY";
    disconnect(cluster) => "ebb cluster disconnect {cluster} --force";
}
