// Plugins, targets in each phase, and the other documents that the pages of the console show.

import { createServer } from "node:http";

/** A plugin whose scripts obey the switches of a topic. */
function notes(folder, version, description) {
  const wait = `i=0; while [ -e "$S/$TOPIC.hold" ]; do i=$((i+1)); echo "waiting for the service of notes, $i"; sleep 1; done`;
  return `apiVersion: ebb.dev/v1
kind: Plugin
name: notes@${version}
description: ${description}
params:
  topic: {type: string, description: The subject of the note}
  size: {type: integer, default: 1, description: Pages of the note}
runners: {shell: {image: "busybox:1.36"}}
defaults: {timeout: 30m, retry: {attempts: 1}}
preStart:
  reserve:
    cleanup: none
    pod: {script: "#!/bin/sh\\necho a place is reserved\\nprintf shelf-4 >/tmp/place\\n"}
    outputs: {place: {file: /tmp/place}}
  write:
    pod:
      script: |
        #!/bin/sh
        set -eu
        S=${folder}/switches
        echo "writing $SIZE pages about $TOPIC to $PLACE"
        ${wait}
        if [ -e "$S/$TOPIC.broken" ]; then echo "the service of notes is not available" >&2; exit 1; fi
        printf %s "$PLACE/$TOPIC" >/tmp/path
    inputs: {topic: "\${params.topic}", size: "\${params.size}", place: "\${units.reserve.outputs.place}"}
    outputs: {path: {file: /tmp/path}}
  index:
    cleanup: none
    pod: {script: "#!/bin/sh\\necho indexed\\n"}
    inputs: {path: "\${units.write.outputs.path}"}
  announce:
    cleanup: none
    pod: {script: "#!/bin/sh\\necho announced\\n"}
    inputs: {path: "\${units.write.outputs.path}"}
postStop:
  remove:
    undoes: write
    pod:
      script: |
        #!/bin/sh
        set -eu
        S=${folder}/switches
        ${wait}
        if [ -e "$S/$TOPIC.kept" ]; then echo "the note is locked by a reader" >&2; exit 1; fi
    inputs: {topic: "\${params.topic}"}
outputs: {path: "\${units.write.outputs.path}"}
`;
}

/** A plugin with units in chains, each of which takes a while. */
export function chains(name, units, length, seconds) {
  const unit = (at) => {
    const before = at % length === 0 ? "" : `    after: [unit-${String(at - 1).padStart(4, "0")}]\n`;
    return `  unit-${String(at).padStart(4, "0")}:\n    cleanup: none\n${before}    pod: {script: "#!/bin/sh\\necho step\\nsleep ${seconds}\\n"}\n`;
  };
  const all = Array.from({ length: units }, (_, at) => unit(at)).join("");
  return `apiVersion: ebb.dev/v1
kind: Plugin
name: ${name}@1.0.0
description: Units in chains of ${length}
runners: {shell: {image: "busybox:1.36"}}
defaults: {timeout: 30m, retry: {attempts: 1}}
preStart:
${all}`;
}

/** Returns the document of a sandbox with a note. */
export const sandbox = (name, { plugin = "notes@1.0.0", size = 1, team = "shop", params } = {}) => `apiVersion: ebb.dev/v1
kind: Sandbox
name: ${name}
labels: {team: ${team}}
resources: {note: {plugin: ${plugin}, params: ${JSON.stringify(params ?? { topic: name, size })}}}
`;

/** Creates a sandbox and waits for its phase. */
export async function create(server, name, phase, options) {
  await server.apply(name, sandbox(name, options), "--wait=false");
  return server.phase(name, phase);
}

/** Makes one sandbox for each phase, and what the other pages list. Returns the names of the sandboxes by phase. */
export async function seed(server) {
  const { folder } = server;
  await server.apply("notes-1", notes(folder, "1.0.0", "A note in a folder of this machine"));
  await server.apply("notes-2", notes(folder, "1.1.0", "A note with an index"));
  await server.apply("wide", chains("wide", 18, 3, 0));
  const phases = {};
  const make = async (phase, name, ...modes) => {
    server.set(name, ...modes);
    phases[phase] = name;
    return create(server, name, phase, { team: phase === "ready" ? "shop" : "payments" });
  };
  await make("ready", "pr-101");
  await make("failed", "pr-102", "broken");
  await make("starting", "pr-103", "hold");
  for (const [phase, name, mode, final] of [
    ["updating", "pr-104", "hold", "updating"],
    ["stopping", "pr-105", "hold", "stopping"],
    ["stuck", "pr-106", "kept", "stuck"],
    ["gone", "pr-107", "", "gone"],
  ]) {
    await create(server, name, "ready", { team: "payments" });
    server.set(name, mode);
    phases[phase] = name;
    if (phase === "updating") await server.apply(name, sandbox(name, { size: 2, team: "payments" }), "--wait=false");
    else await server.ebb("delete", "sandbox", name, "--wait=false");
    await server.phase(name, final);
  }
  phases.wide = "pr-108";
  await create(server, "pr-108", "ready", { plugin: "wide@1.0.0", params: {} });
  await server.apply("previews", `apiVersion: ebb.dev/v1
kind: Source
name: previews
preset: gitlab
verify: {gitlab: {secret: GITLAB_WEBHOOK}}
document:
  ttl: 72h
  resources: {note: {plugin: notes@1, params: {topic: merge-request}}}
`);
  // Without the number of the merge request, no target has a name. The event is listed as rejected.
  const rejected = await fetch(`${server.url}/v1/sources/previews`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-gitlab-token": SECRET_OF_GITLAB, "x-gitlab-event": "Merge Request Hook" },
    body: JSON.stringify(mergeRequest({ action: "open" })),
  });
  await rejected.text();
  // The receiver rejects each notification, so the subscription has a backlog and an error.
  const receiver = createServer((_, response) => response.writeHead(500).end());
  await new Promise((wake) => receiver.listen(0, "127.0.0.1", wake));
  server.child.once("exit", () => receiver.close());
  receiver.unref();
  await server.apply("failures", `apiVersion: ebb.dev/v1
kind: Subscription
name: failures
on: [ready, failed, stuck, gone]
to:
  standard: {url: "http://127.0.0.1:${receiver.address().port}/ebb", secret: EVENTS_SECRET}
`);
  const images = ["--image", "registry.example/relay:1", "--entrypoint-image", "registry.example/entrypoint:1"];
  const urls = ["--callback-url", "https://ebb.example/v1/callbacks", "--pull-url", "https://ebb.example"];
  await server.ebb("cluster", "connect", "demo", ...images, ...urls, "--namespace", "demo:baseline");
  return phases;
}

const SECRET_OF_GITLAB = "secret-of-gitlab";

/** Returns the body of an event of GitLab. */
export function mergeRequest({ action, iid }) {
  const project = { id: 5, name: "shop", path_with_namespace: "acme/shop", web_url: "https://gitlab.example/acme/shop" };
  const attributes = { iid, action, source_project_id: 5, target_project_id: 5, state: "opened", title: "Add a cart", source_branch: "cart", target_branch: "main", url: "https://gitlab.example/acme/shop/-/merge_requests/7", updated_at: "2026-01-02T03:04:05Z", last_commit: { id: "d".repeat(40) } };
  return { object_kind: "merge_request", event_type: "merge_request", user: { username: "ann" }, project, object_attributes: attributes };
}
