// Five questions of a person who does not know the console, from the overview on, with the pointer.

import assert from "node:assert/strict";
import { Pointer, Reader } from "./browser.mjs";
import { create, sandbox } from "./seed.mjs";

/** The maximum number of clicks of an answer. */
const MAX_CLICKS = 3;

const site = (version, text) => `apiVersion: ebb.dev/v1
kind: Plugin
name: site@${version}
runners: {shell: {image: "busybox:1.36"}}
preStart:
  serve:
    cleanup: none
    pod: {script: "#!/bin/sh\\necho ${text}\\nprintf https://site.example/ >/tmp/url\\n"}
    outputs: {url: {file: /tmp/url}}
outputs: {url: {value: "\${units.serve.outputs.url}", show: link}}
`;

/** The questions, and what finds the answer. */
const TASKS = {
  async "the URL of a preview"({ by, page }) {
    await by.write("Search", "site-2");
    await page.keyboard.press("Enter");
    await by.use("link", "sandbox/site-2");
    assert.equal(await page.getByRole("link", { name: "Open site.url" }).getAttribute("href"), "https://site.example/");
  },
  async "the cause of a failure, and its repair"({ by, page, server }) {
    await by.use("link", "sandbox/task");
    assert.match(await page.locator(".why").innerText(), /the service of notes is not available/);
    server.set("task");
    await by.use("link", /^Retry/);
    await by.use("button", /^Retry/);
    await server.phase("task", "ready");
  },
  async "the plugin that fails most"({ by, page }) {
    await by.use("link", "Plugins");
    assert.match(await page.locator("tbody tr").first().innerText(), /^notes\b[^]*failed/);
  },
  async "who waits for what"({ page }) {
    assert.match(await page.locator("main").innerText(), /sandbox\/waiting[^]*update 2 waits since/);
  },
  async "the upgrade of a plugin on its users"({ by, page, server }) {
    await by.use("link", "Plugins");
    await by.use("link", "Upgrade all 2 to 1.1.0");
    await by.use("button", /^Upgrade 2 targets/);
    await page.getByRole("heading", { name: /2 of 2 targets accepted/ }).waitFor();
    for (const name of ["site-1", "site-2"]) {
      await server.phase(name, "ready");
      assert.deepEqual((await server.target(name)).plugins, ["site@1.1.0"]);
    }
  },
};

/** Answers all questions. Returns the clicks of each. */
export async function tasks(browser, server) {
  await server.apply("site-old", site("1.0.0", "old"));
  for (const name of ["site-1", "site-2"]) {
    const document = sandbox(name, { plugin: "site@1", params: {} }).replace("note:", "site:");
    await server.apply(name, document);
  }
  await server.apply("site-new", site("1.1.0", "new"));
  server.set("task", "broken");
  await create(server, "task", "failed");
  server.set("waiting", "hold");
  await create(server, "waiting", "starting");
  await server.apply("waiting", sandbox("waiting", { size: 2 }), "--wait=false");
  const clicks = {};
  for (const [name, answer] of Object.entries(TASKS)) {
    const reader = await (await Reader.open(browser, server)).signIn();
    const by = new Pointer(reader);
    await reader.goto("/console");
    await answer({ by, page: reader.page, server });
    reader.isQuiet();
    await reader.close();
    clicks[name] = by.clicks;
    assert.ok(by.clicks <= MAX_CLICKS, `${name}: ${by.clicks} clicks`);
  }
  server.set("waiting");
  return clicks;
}
