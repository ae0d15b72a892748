// The table of actions. Each is taken by pointer, by keys only, and by pointer without JavaScript.

import assert from "node:assert/strict";
import { Keys, Pointer, Reader, SCREENS } from "./browser.mjs";
import { RANDOM } from "./pages.mjs";
import { create, mergeRequest } from "./seed.mjs";

/** The maximum characters of the name of a target. */
const LONGEST_NAME = 63;
let made = 0;

/** Makes a sandbox for one action. Its name has at least `length` characters. */
async function fresh(server, phase, length = 0) {
  made += 1;
  const name = `act-${made}`.padEnd(length, "n");
  if (phase === "failed") server.set(name, "broken");
  await create(server, name, phase, { team: "actions" });
  server.set(name);
  return name;
}

const at = (name, ...parts) => ["/console/targets/sandbox", name, ...parts].join("/");

/** Waits for a phase in the API, and in the open page if it renews itself. */
async function becomes(reader, server, name, phase) {
  await server.phase(name, phase);
  if (!reader.hasScripts) await reader.goto(at(name));
  await reader.shows(new RegExp(`${name} ${phase}`));
}

/** The rows: a name, the routes of its forms, and what a reader does. A row with `once` needs what exists once. */
export const ACTIONS = [
  {
    name: "sign in by token, and come back",
    forms: ["/console/sign-in"],
    signedOut: true,
    async run({ reader, by, server }) {
      await reader.goto("/console/targets?phase=failed");
      await by.unfold("Use a token");
      await by.write("API token", "a wrong token");
      await by.use("button", "Sign in");
      await reader.page.getByRole("alert").waitFor();
      await by.write("API token", server.token);
      await by.use("button", "Sign in");
      await reader.page.waitForURL("**/console/targets?phase=failed");
    },
  },
  {
    name: "sign in at an issuer, sign out, and be refused",
    forms: [],
    signedOut: true,
    async run({ reader, by, server, names }) {
      const { page } = reader;
      const { issuer } = server;
      const path = at(names.ready.name);
      const begin = async () => {
        await reader.goto(path);
        await by.use("link", `Sign in with ${issuer.url}`);
      };
      const refusal = async () => {
        await page.waitForURL("**/console/sign-in/return?**");
        return page.getByRole("alert").innerText();
      };
      let answer;
      page.on("request", (request) => {
        if (request.url().includes("/console/sign-in/return?")) answer = request.url();
      });
      await begin();
      await issuer.approve(page, "ann");
      await page.waitForURL(`**${path}`);
      const navigation = await page.getByRole("banner").innerText();
      assert.ok(navigation.includes(`${issuer.url} ann`), `no name in ${navigation}`);
      assert.ok(navigation.includes("Sources") && !navigation.includes("Clusters"), `sections of the scopes: ${navigation}`);
      assert.equal((await reader.goto("/console/clusters")).status(), 403, "a page of another role");
      // The same answer again, as with the button Back. The session stays.
      await reader.goto(answer);
      assert.equal(new URL(page.url()).pathname, "/console", "a repeated answer");
      await by.use("button", "Sign out");
      await page.waitForURL("**/console/sign-out");
      await reader.goto(answer);
      assert.match(await refusal(), /has not begun the sign-in/, "an answer after the sign-out");
      // The issuer still knows the person, and asks nothing.
      await begin();
      await page.waitForURL(`**${path}`);
      await reader.context.clearCookies();
      await begin();
      await issuer.approve(page, "eve");
      assert.match(await refusal(), /no rule of EBB_OIDC grants a scope to \S+ eve with the claims .*groups/, "another person");
      if (reader.hasScripts) await reader.isAccessible("a refused sign-in");
      await by.use("link", `Use another account of ${issuer.url}`);
      await issuer.approve(page, "ann");
      // The issuer ends the session of the other account with a form.
      if (!reader.hasScripts) await page.getByRole("button", { name: "Continue" }).click();
      await page.waitForURL(`**${path}`);
      await by.use("button", "Sign out");
      await page.waitForURL("**/console/sign-out");
      const failures = [
        [(response) => response.writeHead(400, { "content-type": "application/json" }).end('{"error": "invalid_grant"}'), 401, /does not accept its code any more: sign in again/],
        [(response) => response.writeHead(429).end(), 503, /\/token responded with status 429\. Try again/],
        // The request ends after 4 s.
        [(response) => setTimeout(() => response.destroy(), 6_000), 503, /\/token: [^]*Try again, or ask an operator/],
      ];
      for (const [failure, status, text] of failures) {
        issuer.failure = failure;
        const answered = page.waitForResponse((response) => response.url().includes("/console/sign-in/return?"));
        await begin();
        assert.equal((await answered).status(), status, `status of ${text}`);
        assert.match(await refusal(), text, "a failure of the token endpoint");
        issuer.failure = undefined;
      }
      assert.match((await reader.goto(path)).url(), /sign-in\?next=/, "a refused person has no session");
      await reader.context.clearCookies();
      await begin();
      await page.getByRole("link", { name: "Cancel" }).click();
      assert.match(await refusal(), /access_denied: End-User aborted interaction/, "a sign-in that the person cancels");
    },
  },
  {
    name: "open a link of ebb open, which works once",
    forms: ["/console/sign-in/link"],
    signedOut: true,
    async run({ reader, by, server, names }) {
      const link = (await server.ebb("open", names.ready.name, "--print")).trim();
      await reader.goto(link);
      await reader.page.waitForURL(`**${at(names.ready.name)}`);
      reader.isQuiet();
      await by.use("button", "Sign out");
      await reader.page.waitForURL("**/console/sign-out");
      await reader.goto(link);
      assert.match(await reader.page.getByRole("alert").innerText(), /was used/, "the link of a session that has ended");
    },
  },
  {
    name: "sign out",
    forms: ["/console/sign-out"],
    async run({ reader, by }) {
      await reader.goto("/console");
      await by.use("button", "Sign out");
      await reader.page.waitForURL("**/console/sign-out");
      await reader.goto("/console/targets");
      assert.match(reader.page.url(), /sign-in\?next=/, "a page after the sign-out");
    },
  },
  {
    name: "sign in the command line with a code",
    forms: ["/console/login"],
    async run({ reader, by }) {
      await reader.goto(`/console/login?challenge=${RANDOM}&state=${RANDOM}`);
      await by.use("button", "Sign in");
      await reader.page.getByLabel("Code").waitFor();
      assert.ok((await reader.page.getByLabel("Code").inputValue()).length > 40, "the code");
    },
  },
  {
    name: "search the list",
    forms: [],
    async run({ reader, by, names }) {
      await reader.goto("/console/targets");
      await by.write("Search", `phase:failed team=payments owner:"role operator" plugin:notes@1.0.0 ${names.failed.name}`);
      await by.use("button", "Search");
      await reader.page.waitForURL(/q=phase/);
      const rows = reader.page.locator("tbody tr");
      assert.equal(await rows.count(), 1);
      await by.use("link", "team=payments ×");
      await reader.page.waitForURL((url) => !url.search.includes("payments"));
      assert.equal(await rows.count(), 1);
      await by.use("link", `sandbox/${names.failed.name}`);
      await reader.page.waitForURL(`**${at(names.failed.name)}`);
    },
  },
  {
    name: "delete a target",
    forms: ["/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const name = await fresh(server, "ready", LONGEST_NAME);
      await reader.goto(at(name));
      await by.use("link", "Delete…");
      await reader.shows(/^Delete sandbox/);
      await reader.page.setViewportSize(SCREENS.narrow.viewport);
      if (reader.hasScripts) await reader.isAccessible("the confirmation of a deletion of a long name");
      await reader.page.setViewportSize(SCREENS.light.viewport);
      assert.match(await reader.page.locator("main").innerText(), /deleted for good[^]*note\/write/);
      await by.use("link", "Cancel");
      await reader.page.waitForURL(`**${at(name)}`);
      await by.use("link", "Delete…");
      await by.use("button", `Delete sandbox/${name}`);
      await reader.page.waitForURL(`**${at(name)}`);
      await becomes(reader, server, name, "gone");
    },
  },
  {
    name: "retry a target",
    forms: ["/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const name = await fresh(server, "failed");
      await reader.goto(at(name));
      await by.use("link", "Retry…");
      await reader.shows(/^Retry sandbox/);
      assert.match(await reader.page.locator("main").innerText(), /These units run again: note\/write/);
      await by.use("button", `Retry sandbox/${name}`);
      await reader.page.waitForURL(`**${at(name)}`);
      await becomes(reader, server, name, "ready");
    },
  },
  {
    name: "retry selected targets",
    forms: ["/console/selection", "/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const failed = [await fresh(server, "failed"), await fresh(server, "failed")];
      const ready = await fresh(server, "ready");
      await reader.goto("/console/targets?label=team%3Dactions");
      for (const name of [...failed, ready]) await by.use("checkbox", `sandbox/${name}`);
      await by.use("button", "Retry selected");
      await reader.page.getByRole("heading", { name: "Retry 2 targets?" }).waitFor();
      assert.match(await reader.page.locator("main").innerText(), new RegExp(`Left out[^]*${ready}`));
      if (reader.hasScripts) await reader.isAccessible("the confirmation of a selection");
      await by.use("button", "Retry 2 targets");
      await reader.page.getByRole("heading", { name: "Retry: 2 of 2 targets accepted" }).waitFor();
      if (reader.hasScripts) await reader.isAccessible("the outcomes of a selection");
      for (const name of failed) await server.phase(name, "ready");
    },
  },
  {
    name: "retry a group of equal failures",
    forms: ["/console/selection", "/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const failed = [];
      for (let count = 0; count < 3; count += 1) failed.push(await fresh(server, "failed"));
      await reader.goto("/console/targets?label=team%3Dactions&phase=failed");
      await by.unfold("3 targets:");
      await reader.page.getByRole("link", { name: `sandbox/${failed[0]}` }).waitFor();
      if (reader.hasScripts) await reader.isAccessible("a group of equal failures");
      await by.use("button", "Retry all 3");
      await by.use("button", "Retry 3 targets");
      await reader.page.getByRole("heading", { name: "Retry: 3 of 3 targets accepted" }).waitFor();
      for (const name of failed) await server.phase(name, "ready");
    },
  },
  {
    name: "delete all shown targets",
    forms: ["/console/selection", "/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const names = [await fresh(server, "ready"), await fresh(server, "ready")];
      await reader.goto(`/console/targets?q=${names[0]}`);
      await by.use("link", "Select all shown");
      await by.use("link", "Select none");
      await reader.page.getByRole("link", { name: "Select all shown" }).waitFor();
      await reader.page.waitForURL((url) => !url.search.includes("select=all"));
      await reader.goto("/console/targets?label=team%3Dactions");
      await by.use("link", "Select all shown");
      await reader.page.waitForURL(/select=all/);
      const boxes = reader.page.locator('tbody input[type="checkbox"]');
      await boxes.first().waitFor();
      const count = await boxes.count();
      assert.equal(await reader.page.locator('tbody input[type="checkbox"]:checked').count(), count);
      await by.use("button", "Delete selected");
      await by.use("button", new RegExp(`^Delete ${count} targets`));
      await reader.page.getByRole("heading", { name: `Delete: ${count} of ${count} targets accepted` }).waitFor();
      for (const name of names) await server.phase(name, "gone");
    },
  },
  {
    name: "compare versions of a plugin",
    forms: [],
    async run({ reader, by }) {
      await reader.goto("/console/plugins/notes");
      await by.choose("Compare", "1.0.0");
      await by.choose("with", "1.1.0");
      await by.use("button", "Compare");
      await reader.page.getByRole("region", { name: "Difference" }).waitFor();
      await by.use("link", "Swap");
      await reader.page.waitForURL(/from=1\.1\.0/);
    },
  },
  {
    name: "upgrade the users of another version",
    forms: ["/console/selection/confirmed"],
    async run({ reader, by }) {
      await reader.goto("/console/plugins/notes?from=1.0.0&to=1.1.0");
      await by.use("link", /^Upgrade all \d+ to 1\.1\.0$/);
      await reader.page.getByRole("heading", { name: / to notes@1\.1\.0\?$/ }).waitFor();
      assert.match(await reader.page.locator("main").innerText(), /All targets are updated at once/);
      if (reader.hasScripts) await reader.isAccessible("the confirmation of an upgrade");
      await by.use("link", "Cancel");
      await reader.page.waitForURL(/from=1\.0\.0/);
    },
  },
  {
    name: "try an event",
    forms: ["/console/sources/{name}"],
    async run({ reader, by, server }) {
      await reader.goto("/console/sources/previews");
      await by.write("Headers, one per line: NAME: VALUE", "x-gitlab-event: Merge Request Hook\ncontent-type: application/json");
      await by.write("Body, as JSON", JSON.stringify(mergeRequest({ action: "open", iid: 7 })));
      await by.use("button", "Try");
      await reader.page.getByRole("status").waitFor();
      const main = await reader.page.locator("main").innerText();
      assert.match(main, /Verdict: apply/, "the verdict of an event");
      const { targets } = await server.api("GET", "/v1/targets?owner=source%20previews");
      assert.deepEqual(targets, [], "the trial of an event creates no target");
    },
  },
  {
    name: "open a unit of a run and its attempt",
    forms: [],
    async run({ reader, by, names }) {
      await reader.goto(at(names.wide.name));
      const link = reader.page.locator(".waterfall tbody a").first();
      const [row, unit] = [await link.getAttribute("href"), await link.innerText()];
      await by.follow(link, "a row of a run");
      await reader.page.waitForURL(`**${row}`);
      await reader.page.getByRole("region", { name: `Unit ${unit}` }).waitFor();
      await by.use("link", "1 of 1");
      await reader.page.waitForURL("**attempt=1**");
      await by.use("link", "Close");
      await reader.page.waitForURL("**#run");
    },
  },
  {
    name: "force-complete a unit",
    forms: ["/console/selection/confirmed"],
    async run({ reader, by, server }) {
      const name = await fresh(server, "ready");
      server.set(name, "kept");
      await server.ebb("delete", "sandbox", name, "--wait=false");
      await server.phase(name, "stuck");
      await reader.goto(at(name));
      await by.use("link", /^Force-complete/);
      await by.write("Reason", "the note is not needed");
      await by.use("button", /^Force-complete/);
      await reader.page.waitForURL(`**${at(name)}`);
      await becomes(reader, server, name, "gone");
      server.set(name);
    },
  },
  {
    name: "read why, a request, a log and the history",
    forms: [],
    async run({ reader, by, names }) {
      await reader.goto(at(names.failed.name));
      await by.use("link", "Request");
      await reader.page.waitForURL("**unit=note%2Fwrite**");
      await reader.page.getByRole("region", { name: "Unit note/write" }).waitFor();
      await reader.goto(at(names.failed.name));
      await by.use("link", "Whole log");
      await reader.page.waitForURL("**/log?**");
      await reader.goto(at(names.failed.name));
      await by.use("link", "History");
      await by.use("link", "document");
      await reader.page.getByRole("region").first().waitFor();
    },
  },
];

/** The ways of a reader. */
const WAYS = {
  "by pointer": { Way: Pointer, options: {} },
  "by keys": { Way: Keys, options: {} },
  "without JavaScript": { Way: Pointer, options: { javaScriptEnabled: false } },
};

/** Takes an action in each way. */
export async function act(browser, server, names, action, way) {
  const { Way, options } = WAYS[way];
  const reader = await Reader.open(browser, server, options);
  reader.hasScripts = options.javaScriptEnabled !== false;
  try {
    if (!action.signedOut) await reader.signIn();
    reader.trouble.length = 0;
    await action.run({ reader, by: new Way(reader), server, names });
    // The sign-in with a wrong token has the status 401, which the browser reports.
    if (!action.signedOut) reader.isQuiet();
  } finally {
    await reader.close();
  }
}

export const ways = Object.keys(WAYS);
export const forms = new Set(ACTIONS.flatMap((action) => action.forms));

/** Signs in with the link of `ebb dev`, which works once. */
export async function byLink(browser, server) {
  const reader = await Reader.open(browser, server);
  await reader.goto(server.link);
  await reader.page.waitForURL("**/console");
  reader.isQuiet();
  await reader.close();
  const second = await Reader.open(browser, server);
  await second.goto(server.link);
  assert.match(await second.page.locator("main").innerText(), /was used/);
  await second.close();
}
