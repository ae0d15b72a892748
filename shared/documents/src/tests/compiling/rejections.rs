//! Every rejection with its message, place, snippet and help.

use super::fixtures::{SHARED_PG, TENANT_DB, WIRED, checked, compiled};
use crate::diagnostic::{Diagnostic, DiagnosticStyle};

const HEAD: &str = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {sh: {image: alpine}}\n";

fn drawn<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let list: Vec<String> = diagnostics.into_iter().map(|d| d.drawn(DiagnosticStyle::Ascii)).collect();
    let text = list.join("\n");
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Checks plugins that differ from [`HEAD`] in what follows.
fn plugin(name: &str, cases: &[&str]) {
    let mut text = String::new();
    for case in cases {
        text += &format!("{case}\n{}\n", drawn(&checked(&format!("{HEAD}{case}"))));
    }
    insta::assert_snapshot!(name, text);
}

/// Compiles a sandbox with the two plugins of the fixtures.
fn sandbox(name: &str, cases: &[String]) {
    let mut text = String::new();
    for case in cases {
        match compiled(case, &[TENANT_DB, SHARED_PG]) {
            Ok(_) => text += "accepted\n",
            Err(errors) => text += &drawn(&errors),
        }
        text += "\n";
    }
    insta::assert_snapshot!(name, text);
}

#[test]
fn names() {
    plugin(
        "names",
        &[
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.bb.outputs.o}\"}}\n  b: {pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o}}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"x ${units.b.outputs.queue-url}\"}}\n  b: {pod: {script: '#!/bin/sh'}, outputs: {queue-url: {file: /o}}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.b.outputs.uri}\"}}\n  b: {pod: {script: '#!/bin/sh'}, outputs: {url: {file: /o}}}\n",
            "params: {region: {type: string}}\npreStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${params.regoin}\"}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh', runner: bash}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, after: [c]}\npostStop:\n  z: {pod: {script: '#!/bin/sh'}, undoes: aa}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${resources.pg.outputs.dsn}\", j: \"${unit.a}\", k: \"${units[params.x].outputs.y}\"}}\n",
            "preStart:\n  a:\n    pod: {script: '#!/bin/sh'}\n    inputs:\n      i: |\n        first\n        second ${params.x +}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}}\npostStop:\n  a: {pod: {script: '#!/bin/sh'}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}}\noutputs: {x: \"${units.a.outputs.x}\"}\n",
        ],
    );
}

#[test]
fn clusters() {
    let secret = "params: {at: {type: string, default: eu}, n: {type: integer, default: 1}, s: {type: string, sensitive: true, required: false}}\npreStart:\n  make: {cluster: data, pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o, sensitive: true}, p: {file: /p}}}\n";
    plugin(
        "clusters",
        &[
            "preStart:\n  a: {cluster: eu, webhook: {url: \"https://e.example.org\"}}\n",
            "preStart:\n  a: {cluster: \"\", pod: {script: '#!/bin/sh'}}\n  b: {cluster: \"x-${target.name}\", pod: {script: '#!/bin/sh'}}\n  c: {cluster: 7, pod: {script: '#!/bin/sh'}}\n",
            &format!(
                "{secret}  a: {{cluster: \"${{params.n}}\", pod: {{script: '#!/bin/sh'}}}}\n  b: {{cluster: \"${{params.s}}\", pod: {{script: '#!/bin/sh'}}}}\n  c: {{cluster: \"${{params.atr}}\", pod: {{script: '#!/bin/sh'}}}}\n  d: {{cluster: \"${{units.make.outputs.p}}\", pod: {{script: '#!/bin/sh'}}}}\n"
            ),
            &format!(
                "{secret}postStop:\n  drop: {{undoes: make, pod: {{script: '#!/bin/sh'}}}}\n  away: {{undoes: make, cluster: data, pod: {{script: '#!/bin/sh'}}}}\n"
            ),
        ],
    );
    // Errors that need a sandbox.
    let used = |inputs: &str| {
        format!(
            "{HEAD}{secret}  use: {{cluster: \"${{params.at}}\", pod: {{script: '#!/bin/sh'}}, inputs: {{{inputs}}}}}\noutputs: {{o: \"${{units.make.outputs.o}}\", p: \"${{units.make.outputs.p}}\"}}\n"
        )
    };
    let both = |first: &str, second: &str| {
        format!(
            "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\ncluster: home\nresources:\n  a: {{plugin: p, params: {{{first}}}}}\n  b: {{plugin: p, params: {{{second}}}}}\n"
        )
    };
    let (own, param) = ("i: \"${units.make.outputs.o}\"", "i: \"${params.s}\"");
    let mut text = String::new();
    for (plugin, sandbox) in [
        (own, both("", "at: data")),
        (param, both("", "s: \"${resources.a.outputs.o}\"")),
        (param, both("s: {secret: x, key: y}", "s: {secret: x, key: y}, at: home")),
        (param, both("at: data", "s: {secret: x, key: y}, at: \"\"")),
        (param, both("", "at: \"${resources.a.outputs.p}\"")),
        (param, both("", "at: data, s: \"${resources.a.outputs.o}\"")),
        ("i: \"${has(units.make.outputs.o)}\"", both("", "")),
    ] {
        text += &match compiled(&sandbox, &[&used(plugin)]) {
            Ok((plan, _)) => plan.hooks[0]
                .units
                .iter()
                .map(|unit| format!("{} in {}\n", unit.key, plan.cluster(unit).unwrap()))
                .collect(),
            Err(errors) => drawn(&errors),
        };
        text += "\n";
    }
    insta::assert_snapshot!("clusters_of_a_sandbox", text);
}

#[test]
fn runners() {
    let base = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\n";
    let mut text = String::new();
    for runners in ["", "runners: {a: {image: x}, b: {image: y}}\n"] {
        text += &drawn(&checked(&format!("{base}{runners}preStart:\n  a: {{pod: {{script: '#!/bin/sh'}}}}\n")));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn order() {
    plugin(
        "order",
        &[
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.z.outputs.o}\"}}\npostStop:\n  z: {pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o}}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.a.outputs.o}\"}, outputs: {o: {file: /o}}}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.c.outputs.o}\"}, outputs: {o: {file: /o}}}\n  b: {pod: {script: '#!/bin/sh'}, inputs: {i: \"${units.a.outputs.o}\"}, outputs: {o: {file: /o}}}\n  c: {pod: {script: '#!/bin/sh'}, after: [b], outputs: {o: {file: /o}}}\n  d: {pod: {script: '#!/bin/sh'}, after: [c]}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}}\npostStart:\n  b: {pod: {script: '#!/bin/sh'}, after: [a]}\n  c: {pod: {script: '#!/bin/sh'}, after: [c]}\n  d: {pod: {script: '#!/bin/sh'}, undoes: a}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}}\npostStop:\n  z: {pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o}}}\noutputs: {o: \"${units.z.outputs.o}\"}\n",
        ],
    );
}

#[test]
fn sensitive() {
    plugin(
        "sensitive",
        &[
            "params: {k: {type: string, sensitive: true, default: x}}\npreStart:\n  a: {pod: {script: '#!/bin/sh'}, inputs: {i: \"key=${params.k}\"}}\n",
            "params: {k: {type: string, sensitive: true}, o: {type: string, default: x}}\npreStart:\n  a:\n    when: ${params.k == \"x\"}\n    webhook:\n      url: https://e.example.org/${params.k}\n      headers: {X-Key: \"${params.k}\"}\n      body: {k: \"${params.k}\"}\n  b:\n    object:\n      manifest:\n        apiVersion: v1\n        kind: ConfigMap\n        metadata: {name: a, namespace: \"${params.o}\"}\n        data: {k: \"${params.k}\", o: \"${secretRef(params.o)}\"}\n",
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, outputs: {s: {file: /s, sensitive: true}}}\n  w: {webhook: {url: \"https://e.example.org\"}, outputs: {s: {value: \"${response.body.s}\", sensitive: true}}}\noutputs: {s: \"<${units.a.outputs.s}>\"}\n",
        ],
    );
}

#[test]
fn doors() {
    plugin(
        "doors",
        &[
            "preStart:\n  a:\n    pod: {script: '#!/bin/sh'}\n    inputs:\n      one-a: x\n      one_a: x\n      b: {value: x, env: 1B}\n      c: {value: x, env: EBB_KEY}\n      d: {value: x, path: /in/d}\n      e: {value: x, path: /in/d}\n      f: {value: x, path: in/f}\n      g: {value: x, path: /proc/g}\n      h: {value: x, path: /in/../h}\n      i: {value: x, path: /in/d/i}\n    outputs:\n      o: {file: /ebb/o}\n",
        ],
    );
}

#[test]
fn webhooks() {
    plugin(
        "webhooks",
        &[
            "params: {h: {type: string}}\npreStart:\n  a: {webhook: {url: \"https://${params.h}/x\"}}\n  b: {webhook: {url: \"${params.h}\"}}\n  c: {webhook: {url: \"ftp://x/\"}}\n  d: {webhook: {url: \"https://user:word@x/\"}}\n  e: {webhook: {url: \"https://x/${\"}}\n  g: {webhook: {url: \"https://x.${params.h}.org/\"}}\n",
            "preStart:\n  f: {webhook: {url: \"https://x/\", headers: {webhook-id: x}, body: {}}, inputs: {i: x}}\n  e: {webhook: {url: \"https://x/\"}, outputs: {p: {value: \"a ${response.body} b\"}, q: {value: params.x}}}\n",
            "preStart:\n  a: {webhook: {url: \"https://x/\", idempotent: false, describe: {url: \"https://x/a\"}}}\n  b: {webhook: {url: \"https://x/\", idempotent: false, maxProcessingTime: 1m, describe: {url: \"https://x/b\"}}, timeout: 1m}\n  c: {webhook: {url: \"https://x/\", idempotent: false, maxProcessingTime: 59s, describe: {url: \"https://x/c\"}}, timeout: 1m}\n  d: {webhook: {url: \"https://x/\", maxProcessingTime: 25h}}\n",
        ],
    );
}

#[test]
fn objects() {
    plugin(
        "objects",
        &[
            "preStart:\n  b: {object: {manifest: {apiVersion: v1, kind: \"${target.kind}\"}, ready: object.x >}}\n",
            "preStart:\n  a: {object: {manifest: []}}\n  b: {object: {manifest: [{apiVersion: v1, kind: A, metadata: {name: a}}, {apiVersion: v1, kind: B}], ready: objects.size() > 1}}\n  c:\n    object: {manifest: {apiVersion: v1, kind: A, metadata: {name: a}}}\n    outputs:\n      k: {secret: {name: \"${object.spec.name}-x\", key: k}}\n      l: {secret: {name: \"${response.body}\", key: k}}\n",
        ],
    );
}

#[test]
fn retries_and_params() {
    plugin(
        "retries_and_params",
        &[
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, retry: {attempts: 1000}}\n",
            "preStart:\n  c: {pod: {script: '#!/bin/sh'}, timeout: 25h}\n",
            "preStart:\n  b: {pod: {script: '#!/bin/sh'}, retry: {backoff: 1m, maxBackoff: 1s}}\n  c: {pod: {script: '#!/bin/sh'}, timeout: 25h}\n",
            "params:\n  c: {type: string, pattern: \"(\"}\n  d: {type: string, maxLength: 3, default: long}\npreStart:\n  u: {pod: {script: '#!/bin/sh'}}\n",
        ],
    );
}

#[test]
fn warnings() {
    plugin(
        "warnings",
        &[
            "preStart:\n  a: {pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o}, p: {file: /p}}}\noutputs: {p: \"${units.a.outputs.p}\"}\n",
        ],
    );
}

#[test]
fn sandboxes() {
    let users = |params: &str| WIRED.replace("{adminDsn: \"${resources.pg.outputs.dsn}\", seedRows: 500}", params);
    sandbox(
        "sandboxes",
        &[
            users("{}"),
            users("{adminDsn: plain}"),
            users("{adminDsn: {secret: s, key: k}, seedRows: -1, region: eu-west-2, regoin: x}"),
            users("{adminDsn: {secret: s, key: k}, seedRows: \"5\", region: {secret: s, key: k}}"),
            users(
                "{adminDsn: {secret: s, key: k}, region: \"${resources.pg.outputs.dsn}\", seedRows: \"1${resources.pg.outputs.port}\"}",
            ),
            users("{adminDsn: \"${resources.pq.outputs.dsn}\"}"),
            users("{adminDsn: \"${resources.pg.outputs.dns}\"}"),
            users("{adminDsn: \"${resources.users.outputs.dsn}\"}"),
            WIRED.replace("PORT: \"p${resources.pg.outputs.port}\"", "PORT: \"p${resources.pg.outputs.dsn}\""),
            WIRED.replace("shared-postgres@1.4.0", "shared-postgrse@1.4.0"),
            WIRED.replace("${resources.users.outputs.dsn}", "${params.x}"),
            "name: s\nspec:\n  cluster: c\n  resources:\n  - {name: r, plugin: shared-postgres}\n  - {name: r, plugin: shared-postgres}\n"
                .to_owned(),
        ],
    );
}

#[test]
fn cycles_over_resources() {
    let node = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: node\nrunners: {sh: {image: alpine}}\nparams: {a: {type: string}, b: {type: string, default: x}}\npreStart:\n  one: {pod: {script: '#!/bin/sh'}, inputs: {a: \"${params.a}\"}, outputs: {o: {file: /o}}}\n  two: {pod: {script: '#!/bin/sh'}, inputs: {b: \"${params.b}\"}, outputs: {o: {file: /o}}}\npostStart:\n  late: {pod: {script: '#!/bin/sh'}, outputs: {o: {file: /o}}}\npostStop:\n  z: {pod: {script: '#!/bin/sh'}}\noutputs: {one: \"${units.one.outputs.o}\", two: \"${units.two.outputs.o}\", a: \"${params.a}\", late: \"${units.late.outputs.o}\"}\n";
    let head = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n";
    let mut text = String::new();
    for resources in [
        "  x: {plugin: node, params: {a: \"${resources.y.outputs.one}\"}}\n  y: {plugin: node, params: {a: \"${resources.x.outputs.one}\"}}\n",
        "  x: {plugin: node, params: {a: \"${resources.y.outputs.two}\"}}\n  y: {plugin: node, params: {a: \"${resources.x.outputs.one}\"}}\n",
        "  x: {plugin: node, params: {a: \"${resources.y.outputs.a}\"}}\n  y: {plugin: node, params: {a: \"${resources.x.outputs.a}\"}}\n",
        "  x: {plugin: node, params: {a: \"${resources.y.outputs.late}\"}}\n  y: {plugin: node, params: {a: x}}\n",
    ] {
        match compiled(&format!("{head}{resources}"), &[node]) {
            Ok(_) => text += "accepted\n",
            Err(errors) => text += &drawn(&errors),
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn too_many_units() {
    let units: String = (0..10_001).map(|n| format!("  u{n}: {{pod: {{script: '#!/bin/sh'}}}}\n")).collect();
    let found = checked(&format!("{HEAD}preStart:\n{units}"));
    let plain: Vec<String> = found.iter().map(Diagnostic::plain).collect();
    insta::assert_snapshot!(plain.join("\n"));
}

/// Errors in the manifests of `k8s-apply` are reported at their place in the sandbox.
#[test]
fn k8s_apply() {
    let resource = |rest: &str| {
        format!("name: s\nspec:\n  cluster: c\n  resources:\n  - name: objects\n    plugin: k8s-apply\n{rest}")
    };
    let data = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("        {line}\n")).collect();
        resource(&format!("    params:\n      data: |\n{}", lines.concat()))
    };
    let ours = |params: &str| {
        format!(
            "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  o: {{plugin: k8s-apply, params: {params}}}\n"
        )
    };
    let whole = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    sandbox(
        "k8s_apply",
        &[
            resource("    params: {date: x}\n"),
            resource("").replace("k8s-apply", "k8s-apply@2.0.0"),
            data(&["# nothing", "---"]),
            data(&[whole, "---", "", "apiVersion: v1", "kind: [", "metadata: {name: b}"]),
            data(&["apiVersion: v1", "kind: ConfigMap", "kind: Secret"]),
            data(&["", whole, "---", "- a", "---", "apiVersion: v1", "kind: List", "metadata: {name: l}"]),
            data(&["apiVersion: v1", "metadata:", "  generateName: x-"]),
            resource("    params:\n      data: \"apiVersion: v1\\nkind: ConfigMap\\nmetadata: {}\\n\"\n"),
            resource(&format!("    params: {{data: '{whole}', ready: 'object.'}}\n")),
            resource(
                "    params: {data: '{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}'}\n  forks:\n  - forkOf: {kind: Deployment, name: d, namespace: n}\n    customizations:\n      env:\n      - {name: A, valueFrom: {resource: {name: objects, outputKey: provision.a}}}\n",
            ),
            ours("{data: 'name: ${target.name}'}"),
            ours("{data: {apiVersion: v1}, ready: {a: b}}"),
            ours("{data: {secret: s, key: k}}"),
        ],
    );
}

/// Two resources of one plugin, bound twice with the params of `first` and `second`.
fn twice(plugin: &str, first: &str, second: &str) -> String {
    let sandbox = format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  orders: {{plugin: p{first}}}\n  users: {{plugin: p{second}}}\n"
    );
    match compiled(&sandbox, &[&format!("{HEAD}{plugin}")]) {
        Ok((_, warnings)) => format!("accepted\n{}", drawn(&warnings)),
        Err(errors) => drawn(&errors),
    }
}

#[test]
fn names_that_two_resources_share() {
    let object = |name: &str| {
        format!(
            "params: {{a: {{type: string, default: x}}}}\npreStart:\n  o: {{object: {{manifest: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: \"{name}\"}}}}}}}}\n"
        )
    };
    let hook = |body: &str| {
        format!(
            "params: {{a: {{type: string, default: x}}}}\npreStart:\n  h: {{webhook: {{url: \"https://e.example.org/\", body: {body}}}}}\n"
        )
    };
    let script = |text: &str| {
        format!(
            "preStart:\n  s: {{cleanup: none, pod: {{script: \"#!/bin/sh\\n{text}\"}}, inputs: {{k: \"${{target.key}}\"}}}}\n"
        )
    };
    let mut text = String::new();
    for (plugin, first, second) in [
        (object("page-${target.key}"), "", ""),
        (object("page-${target.key}-${params.a}"), "", ", params: {a: y}"),
        (object("page-${params.a}"), ", params: {a: y}", ", params: {a: y}"),
        (object("page-${resource.key}"), "", ""),
        (object("${resource.name}-${target.key}"), "", ""),
        (hook("{key: \"${target.key}\"}"), "", ""),
        (hook("{key: \"${target.key}\", a: \"${params.a}\"}"), "", ", params: {a: y}"),
        (hook("{key: \"${resource.key}\", of: \"${target.key}\"}"), "", ""),
        (script("make $K"), "", ""),
        (script("make $EBB_KEY"), "", ""),
    ] {
        text += &format!("{}\n{}\n", plugin.lines().last().unwrap(), twice(&plugin, first, second));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn scripts_that_look_like_templates() {
    plugin(
        "script_templates",
        &[
            "preStart:\n  a:\n    cleanup: none\n    pod:\n      script: |\n        #!/bin/sh\n        echo ${HOME} ${params:-x}\n        echo ${units.b.outputs.o}\n",
            "preStart:\n  a: {cleanup: none, pod: {script: \"#!/bin/sh\\necho ${target} ${units_}\"}}\n",
        ],
    );
}

#[test]
fn work_that_exceeds_the_budget() {
    let patterns = |count: usize, pattern: &str| {
        let params: String = (0..count)
            .map(|n| format!("  p{n}: {{type: string, required: false, pattern: '{pattern}x{n}'}}\n"))
            .collect();
        format!("{HEAD}params:\n{params}preStart:\n  u: {{webhook: {{url: https://e.example.org/}}}}\n")
    };
    let too_large = checked(&patterns(1, r"\w{900}"));
    assert_eq!(
        too_large.iter().map(Diagnostic::plain).collect::<Vec<_>>(),
        [
            "plugin.yaml:6:48: error[param]: the pattern of `p0` cannot be used: it takes more than 65536 bytes when it is compiled"
        ]
    );
    assert_eq!(checked(&patterns(20, r"(?i)[ -\x{10FFFF}]")), []);
    let exhausted = checked(&patterns(60, &format!("(?i){}", "[^a]".repeat(200))));
    let exhausted: Vec<String> = exhausted.iter().map(Diagnostic::plain).collect();
    assert_eq!(exhausted.len(), 1, "{exhausted:?}");
    assert!(
        exhausted[0].starts_with("plugin.yaml:") && exhausted[0].contains("error[compile-limit]: up to here"),
        "{exhausted:?}"
    );
}
