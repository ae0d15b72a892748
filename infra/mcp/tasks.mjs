// Thirteen tasks of a coding agent over HTTP. Ten of them lead from the question why a target failed to the repaired target.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { until } from "./dev.mjs";

/** The maximum number of calls of a task. */
const MAX_CALLS = 5;
/** The maximum bytes of an answer. */
const MAX_ANSWER = 4096;

const sandbox = (name, plugin, params = {}) => `apiVersion: ebb.dev/v1
kind: Sandbox
name: ${name}
resources: {note: {plugin: ${plugin}, params: ${JSON.stringify({ topic: name, ...params })}}}
`;

/** The failures whose cause is outside of the documents: a retry repairs them. `why` is a part of the reason. */
const RETRIED = [
  { name: "exit-code", plugin: "notes@1.0.0", why: /the service of notes is not available/ },
  { name: "missing-output", plugin: "notes@1.1.0", why: /made/ },
  { name: "killed", plugin: "notes@1.2.0", why: /signal|killed|137/i },
  { name: "too-slow", plugin: "notes@1.3.0", why: /timeout|3s/ },
  { name: "http-500", plugin: "remote@1.0.0", why: /500/ },
  { name: "http-text", plugin: "remote@1.0.0", why: /response/ },
  { name: "locked", plugin: "notes@1.0.0", why: /the note is locked by a reader/, stuck: true },
  { name: "http-409", plugin: "remote@1.0.0", why: /409/, stuck: true },
];

const is = (name, phase) => new RegExp(`^sandbox/${name} is ${phase}:`);

/** Answers requests of units: as the name of a topic says, and well after its repair. */
async function service() {
  const repaired = new Set();
  const http = createServer((request, response) => {
    const [, topic, region] = request.url.split("/");
    const fails = (name) => topic === name && !repaired.has(topic);
    if (request.method === "DELETE") return response.writeHead(fails("http-409") ? 409 : 204).end();
    if (fails("http-500")) return response.writeHead(500).end();
    if (region !== "eu") return response.writeHead(422).end(`no region ${region}`);
    response.writeHead(200, { "content-type": "application/json" });
    response.end(fails("http-text") ? "{}" : JSON.stringify({ id: topic }));
  });
  await new Promise((wake) => http.listen(0, "127.0.0.1", wake));
  return { http, url: `http://127.0.0.1:${http.address().port}`, repaired };
}

/** A client that counts its calls and checks the form of each answer. */
class Agent {
  static async connect({ url, token }) {
    const requestInit = { headers: { authorization: `Bearer ${token}` } };
    const agent = Object.assign(new Agent(), { client: new Client({ name: "tasks", version: "1.0.0" }), calls: 0 });
    await agent.client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit }));
    return agent;
  }

  /** Calls a tool. Returns the text of its answer and its next step. */
  async call(name, args = {}) {
    this.calls += 1;
    const { content, isError = false } = await this.client.callTool({ name, arguments: args });
    const [{ text }] = content;
    assert.equal(content.length, 1, name);
    assert.ok(Buffer.byteLength(text) <= MAX_ANSWER, `${name} has ${Buffer.byteLength(text)} bytes`);
    const next = text.trimEnd().split("\n").at(-1);
    assert.match(next, /^Next: /, `${name}: ${text}`);
    return { text, next, isError };
  }

  /** Calls a tool whose answer has to match. */
  async sees(pattern, name, args) {
    const answer = await this.call(name, args);
    assert.match(answer.text, pattern, `${name} ${JSON.stringify(args)}`);
    return answer;
  }
}

/** Does all tasks. Returns the calls of each. */
export async function tasks(server, repository) {
  const { folder, ebb } = server;
  const document = (name) => readFileSync(join(repository, "tests/repairs", name), "utf8");
  const notes = (version, TIMEOUT, FAILS) => {
    const words = { PLUGIN: `notes@${version}`, TIMEOUT, FOLDER: folder, FAILS };
    return document("notes.yaml").replace(/PLUGIN|TIMEOUT|FOLDER|FAILS/g, (word) => words[word]);
  };
  const { http, url, repaired } = await service();
  const figures = {};
  const agent = await Agent.connect(server);
  const publish = async (text) => {
    const file = join(folder, "plugin.yaml");
    writeFileSync(file, text);
    await ebb("apply", "-f", file);
  };
  const apply = async (name, plugin, params) => {
    const file = join(folder, "sandbox.yaml");
    writeFileSync(file, sandbox(name, plugin, params));
    await ebb("apply", "-f", file, "--wait=false", "--allow-replace");
  };
  // An agent waits between calls. The wait is no call.
  const phase = (name, expected) =>
    until(`${name} is ${expected}`, async () => {
      const headers = { authorization: `Bearer ${server.token}` };
      const target = await (await fetch(`${server.url}/v1/targets/sandbox/${name}`, { headers })).json();
      return target.phase === expected;
    });
  const mark = (name, mode) => writeFileSync(join(folder, `${name}.${mode}`), "");
  const task = async (name, work) => {
    agent.calls = 0;
    await work(name);
    assert.ok(agent.calls <= MAX_CALLS, `${name}: ${agent.calls} calls`);
    figures[name] = agent.calls;
  };
  /** Returns the ids of the entries of the history, the newest first. */
  const entries = async (name) => {
    const { text } = await agent.sees(/"change":"created"/, "history", { name });
    return [...text.matchAll(/^\| \{"id":"([^"]+)"/gm)].map(([, id]) => id);
  };
  /** Applies the edited document of the newest entry of the history. */
  const correct = async (name, edit) => {
    const [entry] = await entries(name);
    const shown = await agent.sees(/\| kind: Sandbox/, "history", { name, entry });
    const document = [...shown.text.matchAll(/^\| (.*)$/gm)].map(([, line]) => line).join("\n");
    await agent.sees(/result: updating/, "apply_document", { document: edit(document) });
    await phase(name, "ready");
    await agent.sees(is(name, "ready"), "get_target", { name });
  };
  try {
    await publish(notes("1.0.0", "1m", "exit 1"));
    await publish(notes("1.1.0", "1m", "rm /tmp/made"));
    await publish(notes("1.2.0", "1m", "kill -9 $$"));
    await publish(notes("1.3.0", "3s", "sleep 30"));
    await publish(document("remote.yaml").replaceAll("URL", url));
    for (const { name, plugin, why, stuck } of RETRIED) {
      if (!stuck) mark(name, "broken");
      await apply(name, plugin);
      if (stuck) {
        await phase(name, "ready");
        mark(name, "kept");
        await ebb("delete", "sandbox", name, "--wait=false");
      }
      await phase(name, stuck ? "stuck" : "failed");
      await task(name, async () => {
        await agent.sees(new RegExp(`sandbox/${name}"`), "stuck_and_waiting");
        const { next } = await agent.sees(why, "why_not_ready", { name });
        assert.ok(next.includes(`retry_target {"name":"${name}"}`), next);
        for (const mode of ["broken", "kept"]) rmSync(join(folder, `${name}.${mode}`), { force: true });
        repaired.add(name);
        await agent.sees(/make|drop/, "retry_target", { name });
        await phase(name, stuck ? "gone" : "ready");
        await agent.sees(is(name, stuck ? "gone" : "ready"), "get_target", { name });
      });
    }
    await apply("wrong-region", "remote@1.0.0", { region: "mars" });
    await phase("wrong-region", "failed");
    await task("wrong-region", async (name) => {
      await agent.sees(/422/, "why_not_ready", { name });
      await correct(name, (document) => document.replace("mars", "eu"));
    });
    await apply("failed-update", "notes@1.0.0");
    await phase("failed-update", "ready");
    await apply("failed-update", "notes@1.0.0", { size: 10 });
    await phase("failed-update", "failed");
    await task("failed-update", async (name) => {
      await agent.sees(/a note has at most 9 pages/, "why_not_ready", { name });
      const entry = (await entries(name)).at(-1);
      await agent.sees(/result: updating/, "apply_document", { name, entry });
      await phase(name, "ready");
      await agent.sees(is(name, "ready"), "get_target", { name });
    });
    await task("create", async (name) => {
      await agent.sees(/notes: .*1\.3\.0/, "list_plugins");
      await agent.sees(/topic/, "get_plugin", { name: "notes", version: "1.0.0" });
      await agent.sees(/note\/make/, "plan_document", { document: sandbox(name, "notes@1.0.0") });
      await agent.sees(/result: starting/, "apply_document", { document: sandbox(name, "notes@1.0.0") });
      await phase(name, "ready");
      await agent.sees(is(name, "ready"), "get_target", { name });
    });
    await task("correct and delete", async () => {
      const wrong = await agent.sees(/did you mean `notes`/, "apply_document", { document: sandbox("invalid", "notess@1.0.0"), dry_run: true });
      assert.ok(wrong.isError, wrong.text);
      await agent.sees(/^This would be changed:/, "apply_document", { document: sandbox("invalid", "notes@1.0.0"), dry_run: true });
      await agent.sees(/stopping/, "delete_target", { name: "create" });
      await phase("create", "gone");
      await agent.sees(/\| remaining: \[\]\n.*grade: reported/s, "what_exists", { name: "create" });
    });
    await apply("upgraded", "notes@1.0.0");
    await phase("upgraded", "ready");
    await task("upgraded", async (name) => {
      await agent.sees(/^The version notes@1\.4\.0 is published\./, "apply_document", { document: notes("1.4.0", "2m", "exit 1") });
      await agent.sees(/"sandbox\/upgraded"/, "list_targets", { plugin: "notes@1.0.0", q: name });
      const upgrade = { plugin: "notes@1.4.0", names: [name] };
      await agent.sees(/^This would be changed by notes@1\.4\.0:\n\| .*sandbox\/upgraded/, "upgrade_plugin", { ...upgrade, dry_run: true });
      await agent.sees(/^The targets get notes@1\.4\.0:/, "upgrade_plugin", { ...upgrade, allow_replace: true });
      await phase(name, "ready");
      await agent.sees(/notes@1\.4\.0/, "get_target", { name });
    });
  } finally {
    await agent.client.close();
    http.close();
  }
  assert.equal(Object.keys(figures).length, 13);
  return figures;
}
