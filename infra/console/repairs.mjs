// Ten failures, each from the question why it failed to the repaired target, with the pointer.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { Pointer, Reader, until } from "./browser.mjs";
import { sandbox } from "./seed.mjs";

/** The maximum number of clicks of a repair, from the list on. */
const MAX_CLICKS = 3;

/** The failures: a name, its plugin, what the page says, and how the target fails. */
const REPAIRS = [
  { name: "exit-code", plugin: "notes@1.0.0", why: /the service of notes is not available/ },
  { name: "missing-output", plugin: "fragile@1.0.0", why: /made/ },
  { name: "killed", plugin: "fragile@1.1.0", why: /signal|killed|137/i },
  { name: "too-slow", plugin: "fragile@1.2.0", why: /timeout|time limit|3s|3 s/i },
  { name: "http-500", plugin: "remote@1.0.0", why: /500/ },
  { name: "http-422", plugin: "remote@1.0.0", why: /422/ },
  { name: "http-text", plugin: "remote@1.0.0", why: /response|id|JSON/ },
  { name: "failed-update", plugin: "notes@1.0.0", why: /the service of notes is not available/, update: true },
  { name: "locked", plugin: "notes@1.0.0", why: /the note is locked by a reader/, stuck: true },
  { name: "http-409", plugin: "remote@1.0.0", why: /409/, stuck: true },
];

/** Answers requests of units: as the name of a topic says, and well after its repair. */
async function service() {
  const repaired = new Set();
  const http = createServer((request, response) => {
    const [, topic] = request.url.split("/");
    const fails = !repaired.has(topic);
    if (request.method === "DELETE") return response.writeHead(fails && topic === "http-409" ? 409 : 204).end();
    if (fails && topic === "http-500") return response.writeHead(500).end();
    if (fails && topic === "http-422") return response.writeHead(422).end();
    response.writeHead(200, { "content-type": "application/json" });
    response.end(fails && topic === "http-text" ? "{}" : JSON.stringify({ id: topic }));
  });
  await new Promise((wake) => http.listen(0, "127.0.0.1", wake));
  return { http, url: `http://127.0.0.1:${http.address().port}`, repaired };
}

/** Repairs all. Returns the clicks and milliseconds of each. */
export async function repairs(browser, server, repository) {
  const document = (name) => readFileSync(join(repository, "tests/repairs", name), "utf8");
  const { http, url, repaired } = await service();
  const fragile = async (version, TIMEOUT, FAILS) => {
    const words = { PLUGIN: `fragile@${version}`, TIMEOUT, FOLDER: join(server.folder, "switches"), FAILS };
    const text = document("notes.yaml").replace(/PLUGIN|TIMEOUT|FOLDER|FAILS/g, (word) => words[word]);
    await server.apply(`fragile-${version}`, text);
  };
  await fragile("1.0.0", "1m", "rm /tmp/made");
  await fragile("1.1.0", "1m", "kill -9 $$");
  await fragile("1.2.0", "3s", "sleep 30");
  await server.apply("remote", document("remote.yaml").replaceAll("URL", url));
  const figures = {};
  try {
    for (const { name, plugin, why, update, stuck } of REPAIRS) {
      const apply = (size = 1) => {
        const params = plugin.startsWith("remote") ? { topic: name } : { topic: name, size };
        return server.apply(name, sandbox(name, { plugin, params, team: "repairs" }), "--wait=false");
      };
      if (!update && !stuck) server.set(name, "broken");
      await apply();
      if (update || stuck) {
        await server.phase(name, "ready");
        server.set(name, update ? "broken" : "kept");
        if (update) await apply(2);
        else await server.ebb("delete", "sandbox", name, "--wait=false");
      }
      await server.phase(name, stuck ? "stuck" : "failed");
      const reader = await (await Reader.open(browser, server)).signIn();
      const by = new Pointer(reader);
      await reader.goto("/console");
      await by.use("link", `sandbox/${name}`);
      const text = await reader.page.locator(".why").innerText();
      assert.match(text, why, `${name}: the reason`);
      // The cause is outside of the console.
      server.set(name);
      repaired.add(name);
      const began = Date.now();
      await by.use("link", "Retry…");
      await by.use("button", `Retry sandbox/${name}`);
      await reader.shows(stuck ? /gone/ : /ready/);
      figures[name] = { clicks: by.clicks, ms: Date.now() - began };
      assert.ok(by.clicks <= MAX_CLICKS, `${name}: ${by.clicks} clicks`);
      reader.isQuiet();
      await reader.close();
      if (!stuck) await server.ebb("delete", "sandbox", name, "--wait=false");
    }
  } finally {
    http.close();
  }
  await until("the repaired targets are gone", async () => {
    const { targets } = await server.api("GET", "/v1/targets?label=team%3Drepairs");
    return targets.length === 0;
  });
  return figures;
}
