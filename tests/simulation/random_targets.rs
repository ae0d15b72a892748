//! Random targets: plugins and documents that follow from a seed.

use super::plugin_documents as documents;
use super::*;

/// A number of units that several invocations dispatch.
const WIDE: u64 = 120;
/// The version of the first plugin with other timeouts, by which operators repair teardowns.
pub(super) const REPAIRED: &str = "1.0.1";
/// Distinguishes the numbers of lists and slots.
const LISTS: u64 = 0x1704;
const OUTPUTS: &str = "outputs: {first: \"${units.u0.outputs.id}\", sized: \"${params.size}\"}\n";

/// The part of a document that protects a resource, and the one that lifts the protection.
pub(super) const PROTECTED: &str = "protect: true, ";
pub(super) const LIFTED: &str = "protect: false, ";
pub(super) const OWN_HOOKS: &str = include_str!("own_hooks.yaml");
/// A document without resources.
pub(super) const EMPTY: &str = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources: {}\n";
/// The name and the value of an input with which an own undo fails until an operator corrects it with a document.
pub(super) const WRONG: &str = "wrong";

struct RandomUnit {
    action: UnitAction,
    hook: Hook,
    reads: Vec<usize>,
    after: Vec<usize>,
    rest: String,
    /// The use of the provider, in place of the action.
    provider: Option<ProviderUnit>,
}

impl TargetScenario {
    /// Returns the target of a seed. One in a hundred has many units.
    pub fn random(seed: u64) -> Self {
        let random = SimRandom::new(seed);
        let (first, second) = (format!("d{:x}a", seed & 0xffff_ffff), format!("d{:x}b", seed & 0xffff_ffff));
        let mut document =
            format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n  a: {{plugin: {first}@1.0.0}}\n");
        let of = |name: String, text: String| (name, "1.0.0".to_owned(), text);
        let (mut plugins, mut changed) = (Vec::new(), Vec::new());
        if random.below(100) == 0 {
            plugins.push(of(first.clone(), wide(&random, &first)));
        } else {
            let events = events_of(&SimRandom::new(seed ^ 0xe7e7));
            let of_seed = |numbers: [u64; 3]| numbers.map(|of| SimRandom::new(seed ^ of));
            let text = plugin(&random, &first, false, Some(&of_seed([0x9a0d, 0x31a9, LISTS]))) + &events;
            let repaired = text.replace("@1.0.0\n", &format!("@{REPAIRED}\n")).replace("{timeout: 5m", "{timeout: 4m");
            // The undos of another version would look for the things of the provider elsewhere.
            let (has_things, has_list) = (text.contains("/things"), text.contains(EACH));
            plugins.push((first.clone(), REPAIRED.to_owned(), repaired));
            plugins.push(of(first.clone(), text));
            if random.below(3) == 0 {
                let wire = "wire: \"${resources.a.outputs.first}\"";
                document += &format!("  b:\n    plugin: {second}@1.0.0\n    params: {{{wire}}}\n");
                let alone = document.split("  b:\n").next().unwrap_or_default();
                changed.push(alone.to_owned());
                let text = plugin(&random, &second, true, Some(&of_seed([0x9b0d, 0x101e, LISTS + 1])));
                plugins.push(of(second.clone(), text));
            }
            let signadot = SimRandom::new(seed ^ 0x51d0);
            if signadot.below(4) == 0 {
                let third = format!("d{:x}s", seed & 0xffff_ffff);
                // Its outputs are sensitive.
                let text = include_str!("signadot.yaml").replace("NAME", &third);
                plugins.push(of(third.clone(), text));
                document += &format!("  s: {{plugin: {third}@1.0.0}}\n");
                if signadot.below(2) == 0 {
                    let from = "'${resources.s.outputs[\"u1.id\"]}'";
                    document += &format!("  t: {{plugin: {third}@1.0.0, params: {{from: {from}}}}}\n");
                }
            }
            if SimRandom::new(seed ^ 0xb12d).below(4) == 0 {
                let kept = ", kept: \"${resources.s.outputs['u1.id']}\"";
                let more = if document.contains("  s: {plugin") { kept } else { "" };
                document = document.replacen("resources:\n", &format!("{}resources:\n", bound::lines(more)), 1);
                changed.push(document.replace("data: {first:", "data: {renamed:"));
            }
            let name = format!("plugin: {first}@1.0.0");
            let with = |param: &str| document.replacen(&name, &format!("{name}, params: {{{param}}}"), 1);
            changed.extend([with("size: 1"), with("size: 2"), format!("{document}  c: {{{name}}}\n")]);
            if has_list {
                changed.extend(["items: []", "items: [b, d]", "items: [a, b, c]"].map(with));
            }
            // Another version of the plugin has other units and hooks.
            let other = SimRandom::new(seed ^ 0x0e11);
            let text = plugin(&other, &first, false, None).replace("@1.0.0\n", "@1.1.0\n") + &events_of(&other);
            plugins.push((first.clone(), "1.1.0".to_owned(), text));
            if !has_things {
                changed.push(document.replace(&format!("{first}@1.0.0"), &format!("{first}@1.1.0")));
            }
            let replaced = OWN_HOOKS.replace("\\ntrue", "\\ntrue 2");
            changed.extend([format!("{document}{OWN_HOOKS}"), EMPTY.to_owned(), format!("{EMPTY}{replaced}")]);
        }
        Self { changed, ..Self::new(plugins, document, UnitBehavior::Random) }
    }

    /// Returns the target with a range of versions of its first plugin in each document, so that a source keeps upgrades.
    pub(super) fn ranged(self) -> Self {
        let Some((plugin, ..)) = self.plugins.iter().find(|(_, version, _)| version == REPAIRED) else { return self };
        let (exact, range) = (format!("{plugin}@1.0.0"), format!("{plugin}@1.0"));
        let ranged = |text: &String| text.replace(&exact, &range);
        let changed = self.changed.iter().filter(|text| text.contains(&exact)).map(ranged).collect();
        Self { document: ranged(&self.document), changed, ..self }
    }
}

fn wide(random: &SimRandom, name: &str) -> String {
    let all: Vec<String> = (0..WIDE + random.below(20)).map(|unit| format!("u{unit}")).collect();
    let setup = |(unit, name): (usize, &String)| {
        let after = if unit % 64 == 63 { list("after", &all[unit - 63..=unit - 63]) } else { String::new() };
        documents::setup(name, UnitAction::Once, &[], &after)
    };
    let last = documents::setup("last", UnitAction::Later, &[], &list("after", &all));
    let undo = |(number, group): (usize, &[String])| {
        let url = format!("https://outside.test/once/x{number}");
        format!("  x{number}:\n{}    webhook: {{url: \"{url}\"}}\n", list("undoes", group))
    };
    documents::head(name, false, documents::DEFAULTS)
        + &documents::hook(Hook::PreStart, all.iter().enumerate().map(setup).chain([last]))
        + &documents::hook(Hook::PostStop, all.chunks(40).enumerate().map(undo))
        + OUTPUTS
}

/// Returns a plugin. Units use the provider by the first numbers of `provider`, so that the others stay as they are without it.
/// The second ones make some uses others, and tolerate failures of some units. The third ones add lists and slots. Both change
/// nothing in the seeds of a test.
fn plugin(random: &SimRandom, name: &str, is_wired: bool, provider: Option<&[SimRandom; 3]>) -> String {
    let count = 1 + random.below(6) as usize;
    let posts = if random.below(3) == 0 { random.below(3) as usize } else { 0 };
    let first_post = count.saturating_sub(posts).max(1);
    let mut units: Vec<RandomUnit> = (0..count).map(|number| unit(random, number, first_post)).collect();
    let mut rest = String::new();
    if random.below(4) == 0 {
        let body = documents::body("drain", any_action(random), &["u0".to_owned()]);
        rest += &documents::hook(Hook::PreStop, [format!("  drain:\n{body}")].into_iter());
    }
    if random.below(3) == 0 {
        let units = (0..1 + random.below(2)).map(|number| {
            let mut reads = if random.below(2) == 0 { vec!["u0".to_owned()] } else { Vec::new() };
            if is_wired && random.below(2) == 0 {
                reads.push("old".to_owned());
            }
            format!("  c{number}:\n{}", documents::body(&format!("c{number}"), any_action(random), &reads))
        });
        rest += &documents::hook(Hook::Update(0), units.collect::<Vec<_>>().into_iter());
    }
    let groups = groups(random, &units);
    let evidence = provider.map_or("", |random| use_provider(random, &mut units, &groups));
    // The first unit has what events, updates and other plugins read.
    for unit in units.iter_mut().skip(1) {
        if provider.is_some_and(|[_, more, _]| more.below(6) == 0) {
            unit.rest.push_str("    onFailure: continue\n");
        }
    }
    let mut text = documents::head(name, is_wired, documents::DEFAULTS);
    if let Some([.., lists]) = provider {
        text = use_list(lists, &text, &mut units, &groups);
    }
    rest += &undos(random, &units, &groups);
    text += evidence;
    for hook in [Hook::PreStart, Hook::PostStart] {
        let of_hook = (0..count).filter(|&number| units[number].hook == hook);
        text += &documents::hook(hook, of_hook.map(|number| setup(number, &units, is_wired && number == 0)));
    }
    if provider.is_some_and(|[random, ..]| random.below(3) == 0) {
        // The other servers that respond at once are behind the connection, too.
        rest = rest.replace("url: \"https://outside.test/once/", &format!("connection: {CONNECTION}, path: \"/once/"));
    }
    text += &rest;
    if provider.is_some() && text.len().is_multiple_of(4) {
        // The relay sends the requests to the other servers.
        let of_cluster = "    cluster: default\n    webhook: {url: \"http://outside.units.svc/";
        text = text.replace("    webhook: {url: \"https://outside.test/", of_cluster);
    }
    text + OUTPUTS
}

/// Lets units of every third plugin use the provider: of those whose undo has nothing else to undo. Returns the line of the
/// evidence that the plugin requires.
fn use_provider(numbers: &[SimRandom; 3], units: &mut [RandomUnit], groups: &[Vec<usize>]) -> &'static str {
    let random = &numbers[0];
    if random.below(3) > 0 {
        return "";
    }
    for (number, unit) in units.iter_mut().enumerate() {
        if is_alone(groups, number) && unit.action != UnitAction::Plugin && random.below(3) > 0 {
            unit.provider = Some(ProviderUnit::random(numbers));
        }
    }
    let confirms =
        |provider: ProviderUnit| !matches!(provider.removal, ThingRemoval::Unawaited | ThingRemoval::Emptied);
    let are_confirmed = groups.iter().all(|group| units[group[0]].provider.is_some_and(confirms));
    let has_instance = units.iter().any(|unit| unit.action == UnitAction::Plugin);
    match random.below(3) {
        0 if are_confirmed && !has_instance => "evidence: confirmed\n",
        0 => "evidence: reported\n",
        _ => "",
    }
}

/// Returns true if the undo of a unit undoes no other one.
fn is_alone(groups: &[Vec<usize>], number: usize) -> bool {
    groups.iter().all(|group| group.len() == 1 || !group.contains(&number))
}

/// Lets units of every third plugin exist for each entry of a list, and gives every fifth plugin few slots. Returns the lines
/// before the hooks. The first unit has what others read as one text.
fn use_list(random: &SimRandom, head: &str, units: &mut [RandomUnit], groups: &[Vec<usize>]) -> String {
    let mut head = head.to_owned();
    if random.below(5) == 0 {
        head += &format!("maxConcurrent: {}\n", 1 + random.below(3));
    }
    if random.below(3) > 0 {
        return head;
    }
    for (number, unit) in units.iter_mut().enumerate().skip(1) {
        if is_alone(groups, number) && unit.action != UnitAction::Plugin && random.below(3) > 0 {
            match &mut unit.provider {
                Some(provider) => provider.each = true,
                None => unit.rest.push_str(EACH),
            }
        }
    }
    documents::with_items(&head, ["[]", "[a]", "[a, b]", "[c, a, b]"][random.below(4) as usize])
}

fn any_action(random: &SimRandom) -> UnitAction {
    use UnitAction::{Again, Later, Once, Pod};
    [Pod, Pod, Once, Later, Later, Again][random.below(6) as usize]
}

fn unit(random: &SimRandom, number: usize, first_post: usize) -> RandomUnit {
    let hook = if number < first_post { Hook::PreStart } else { Hook::PostStart };
    let (mut reads, mut after) = (Vec::new(), Vec::new());
    for other in 0..number {
        match random.below(5) {
            0 | 1 => reads.push(other),
            2 if (other < first_post) == (number < first_post) => after.push(other),
            _ => {}
        }
    }
    let mut rest = String::new();
    if random.below(14) == 0 && number > 0 {
        rest.push_str("    when: ${params.off}\n");
    }
    match random.below(4) {
        0 => rest.push_str("    timeout: 30s\n"),
        1 => rest.push_str("    timeout: 2m\n    retry: {attempts: 2, backoff: 500ms}\n"),
        _ => {}
    }
    let action = if random.below(7) == 0 { UnitAction::Plugin } else { any_action(random) };
    RandomUnit { action, hook, reads, after, rest, provider: None }
}

fn setup(number: usize, units: &[RandomUnit], is_wired: bool) -> String {
    let (unit, name) = (&units[number], format!("u{number}"));
    let read = unit.reads.iter().map(|&read| match units[read].provider {
        Some(_) => format!("u{read}.endpoint"),
        None => format!("u{read}"),
    });
    let item = unit.rest.contains(EACH).then(|| "item".to_owned());
    let reads: Vec<String> = read.chain(is_wired.then(|| "wire".to_owned())).chain(item).collect();
    let after = list("after", &names('u', &unit.after));
    match unit.provider {
        // A thing has a timeout and retries of its own.
        Some(provider) => {
            let conditions = unit.rest.lines().filter(|line| line.contains("when:") || line.contains("onFailure:"));
            let conditions: String = conditions.map(|line| format!("{line}\n")).collect();
            provider.setup(&name, &reads, &(conditions + &after))
        }
        None => documents::setup(&name, unit.action, &reads, &(unit.rest.clone() + &after)),
    }
}

/// Returns the event of every second plugin: two units, the first of which reads a setup unit.
fn events_of(random: &SimRandom) -> String {
    if random.below(2) > 0 {
        return String::new();
    }
    let first = documents::setup("nap", any_action(random), &["u0".to_owned()], "");
    let second = format!("  rest:\n{}", documents::body("rest", any_action(random), &["nap".to_owned()]));
    let units = (first + &second).lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!("hooks:\n  {EVENT}:\n{units}")
}

/// Returns the units that each undo has. Some undo two neighbours, so that their order has no circle.
fn groups(random: &SimRandom, units: &[RandomUnit]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        match (random.below(8), groups.last_mut()) {
            _ if unit.action == UnitAction::Plugin => {}
            (0, _) => {}
            (1, Some(last)) if last.len() == 1 && last[0] + 1 == number => last.push(number),
            _ => groups.push(vec![number]),
        }
    }
    groups
}

fn undos(random: &SimRandom, units: &[RandomUnit], groups: &[Vec<usize>]) -> String {
    let undo = |(number, group): (usize, &Vec<usize>)| {
        let depends = |other: &usize| {
            let unit = &units[*other];
            group.iter().any(|one| unit.reads.contains(one) || unit.after.contains(one))
        };
        let later = groups.iter().enumerate().skip(number + 1);
        let after: Vec<usize> = later.filter(|(_, other)| other.iter().any(depends)).map(|(other, _)| other).collect();
        let (name, action, after) = (format!("x{number}"), any_action(random), names('x', &after));
        match units[group[0]].provider {
            Some(provider) => provider.undo(&name, &format!("u{}", group[0]), &after),
            None => documents::undo(&name, action, &names('u', group), &after),
        }
    };
    documents::hook(Hook::PostStop, groups.iter().enumerate().map(undo))
}
