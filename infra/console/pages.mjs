// The table of pages. Each route that answers a browser with a page has a row, and each link of a page leads to one.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Reader, SCREENS } from "./browser.mjs";
import { chains, create } from "./seed.mjs";

/** Routes that answer with no page of their own. */
export const NO_PAGE = {
  "/": "redirects to the overview",
  "/console/": "redirects to the overview",
  "/console/runs/{run}/log.txt": "logs as plain text",
  "/console/assets/{file}": "style, script and icon",
  "/console/sign-in/begin": "redirects to an issuer",
  "/console/sign-in/return": "redirects to a page, or shows the sign-in",
  "/console/changes": "JSON for open pages",
  "/console/selection/confirmed": "a form; its GET redirects to the overview",
};
/** A text of 32 bytes, such as those of the sign-in of the command line. */
export const RANDOM = "A".repeat(43);
/** Maximum bytes of a first visit, with style, script and icon. */
const MAX_FIRST_LOAD = 40_000;

/** Returns the names that the paths of the pages contain. `phases` has a target for each phase. */
export async function world(server, phases) {
  const of = async (name) => {
    const { uid, runs } = await server.target(name);
    const { entries } = await server.api("GET", `/v1/targets/sandbox/${name}/history`);
    return { name, uid, run: runs.at(-1).id, entry: entries[0].id };
  };
  const found = {};
  for (const [phase, name] of Object.entries(phases)) found[phase] = await of(name);
  return found;
}

/** The rows: a name, the route, the path, the title, a text of the page, and the status if it is not 200. */
export function pages({ ready, failed, starting, updating, stopping, stuck, gone, wide }) {
  const target = (it, ...parts) => ["/console/targets/sandbox", it.name, ...parts].join("/");
  const action = (it, verb) => `/console/selection?${new URLSearchParams({ action: verb, target: `sandbox/${it.name} ${it.uid}`, back: target(it) })}`;
  const log = (it, unit) => `/console/runs/${it.run}/log?unit=${encodeURIComponent(unit)}`;
  const run = (it, unit) => `${target(it)}?${new URLSearchParams({ run: it.run, ...(unit && { unit }) })}`;
  const row = (name, route, path, title, text, status = 200) => ({ name, route, path, title, text, status });
  const of = (phase, it, text) => row(`a ${phase} target`, TARGET, target(it), new RegExp(`${it.name} ${phase}`), text);
  const [LIST, TARGET] = ["/console/targets", "/console/targets/{kind}/{name}"];
  return [
    row("overview", "/console", "/console", /^Overview/, stuck.name),
    row("list", LIST, LIST, /^Targets/, failed.name),
    row("list of a phase", LIST, `${LIST}?phase=failed`, /^Targets/, failed.name),
    row("list of gone targets", LIST, `${LIST}?phase=gone`, /^Targets/, gone.name),
    row("list by label", LIST, `${LIST}?label=team%3Dshop`, /^Targets/, ready.name),
    row("list with all filters", LIST, `${LIST}?q=${encodeURIComponent('phase:ready team=shop owner:"role operator" plugin:notes pr-')}`, /^Targets/, ready.name),
    row("list with all selected", LIST, `${LIST}?select=all`, /^Targets/, "Select none"),
    of("ready", ready, "note.path"),
    of("failed", failed, "the service of notes is not available"),
    of("starting", starting, "note/write"),
    of("updating", updating, "All units"),
    of("stopping", stopping, "postStop"),
    of("stuck", stuck, "the note is locked by a reader"),
    of("gone", gone, "What was removed"),
    of("ready", wide, "18 succeeded"),
    row("confirmation of a deletion", "/console/selection", action(ready, "delete"), /^Delete sandbox/, "Cancel"),
    row("confirmation of a retry", "/console/selection", action(failed, "retry"), /^Retry sandbox/, "note/write"),
    row("history", `${TARGET}/history`, target(gone, "history"), /^History of/, "deleted"),
    row("entry of the history", `${TARGET}/history/{id}`, target(ready, "history", ready.entry), /created/, "kind: Sandbox"),
    row("run", TARGET, run(failed), new RegExp(`${failed.name} failed`), "1 failed"),
    row("unit", TARGET, run(failed, "note/write"), new RegExp(`${failed.name} failed`), "shelf-4"),
    row("unit that runs", TARGET, run(starting, "note/write"), new RegExp(`${starting.name} starting`), "waiting for the service of notes"),
    row("confirmation of a force-delete", "/console/selection", action(stuck, "force-delete"), /^Force-delete sandbox/, "Reason"),
    row("log", "/console/runs/{run}/log", log(failed, "note/write"), /^Log of note\/write/, "the service of notes is not available"),
    row("lines of a log", "/console/runs/{run}/log", `${log(failed, "note/write")}&q=SERVICE`, /^Log of note\/write/, "the service of notes is not available"),
    row("logs of a run", "/console/runs/{run}/log", log(failed, "").split("?")[0], /^Logs of a run/, "the service of notes is not available"),
    row("log of a running script", "/console/runs/{run}/log", log(starting, "note/write"), /^Log of note\/write/, "waiting for the service of notes"),
    row("plugins", "/console/plugins", "/console/plugins", /^Plugins/, "notes"),
    row("plugin", "/console/plugins/{name}", "/console/plugins/notes?version=1.0.0", /notes@1.0.0/, "Pages of the note"),
    row("difference", "/console/plugins/{name}", "/console/plugins/notes?from=1.0.0&to=1.1.0", /notes@1.1.0/, "A note with an index"),
    row("sources", "/console/sources", "/console/sources", /^Sources/, "previews"),
    row("source", "/console/sources/{name}", "/console/sources/previews", /^Source previews/, "iid"),
    row("subscriptions", "/console/subscriptions", "/console/subscriptions", /^Subscriptions/, "failures"),
    row("subscription", "/console/subscriptions/{name}", "/console/subscriptions/failures", /failures/, "127.0.0.1"),
    row("clusters", "/console/clusters", "/console/clusters", /^Clusters/, "demo"),
    row("cluster", "/console/clusters/{name}", "/console/clusters/demo", /^Cluster demo/, "no relay has registered yet"),
    row("sign-in of the command line", "/console/login", `/console/login?challenge=${RANDOM}&state=${RANDOM}&port=1`, /^Sign in the command line/, "asks to act as"),
    row("no page", "/console/{*rest}", "/console/nothing", /^Not Found/, "no page has this address", 404),
    row("no target", TARGET, "/console/targets/sandbox/none", /^Not Found/, "Start page", 404),
  ];
}

/** The pages that every server with a target has: those of the navigation, and those that they lead to. */
export const reachable = ["/console", "/console/targets", "/console/plugins", "/console/sources", "/console/subscriptions", "/console/clusters"];

/** Reads the routes of the console from the code: each path with its methods. */
export function routes(repository) {
  const code = readFileSync(join(repository, "shared/api/src/console.rs"), "utf8");
  const names = readFileSync(join(repository, "shared/console/src/paths.rs"), "utf8") + code;
  const constants = new Map([...names.matchAll(/const (\w+): &str = "([^"]+)"/g)].map(([, name, path]) => [name, path]));
  const found = new Map();
  for (const [, path, constant, handlers] of code.matchAll(/\.route\(\s*(?:"([^"]+)"|(?:paths::)?(\w+)),\s*(.*)\)/g)) {
    const name = path ?? constants.get(constant);
    assert.ok(name, `the path ${constant} of a route is not known`);
    const methods = [...handlers.matchAll(/\b(get|post|put|delete)\(/g)].map(([, method]) => method.toUpperCase());
    found.set(name, new Set([...(found.get(name) ?? []), ...methods]));
  }
  assert.ok(found.size > 20, `only ${found.size} routes were found in console.rs`);
  return found;
}

/** Returns the route of a path. A part in braces is one segment, and `{*rest}` is the last resort. */
export function routeOf(path, all) {
  const segments = path.split("/");
  const fits = (route) => {
    const parts = route.split("/");
    return parts.length === segments.length && parts.every((part, at) => part.startsWith("{") || part === segments[at]);
  };
  const literal = (route) => route.split("/").filter((part) => !part.startsWith("{")).length;
  const fitting = [...all].filter((route) => !route.includes("{*") && fits(route));
  return fitting.sort((one, other) => literal(other) - literal(one))[0];
}

/** Fails if a route has no row, or a form no action. `forms` are the routes of the table of actions. */
export function isComplete(repository, rows, forms) {
  const all = routes(repository);
  const having = (method) => [...all].filter(([, methods]) => methods.has(method)).map(([route]) => route).sort();
  const shown = new Set([...rows.map((row) => row.route), "/console/sign-in", ...Object.keys(NO_PAGE)]);
  assert.deepEqual(having("GET").filter((route) => !shown.has(route)), [], "routes without a row in the table of pages");
  assert.deepEqual(having("POST").filter((route) => !forms.has(route)), [], "forms without a row in the table of actions");
  assert.deepEqual([...shown, ...forms].filter((route) => !all.has(route)), [], "rows without a route");
}

/** Returns the paths of the links of a page. Fails if one leads elsewhere. */
export async function links(reader) {
  const found = await reader.page.$$eval("a[href]:not(.external)", (all) => all.map((link) => link.getAttribute("href")));
  const outside = found.filter((href) => !/^(\/console($|[/?])|#)/.test(href));
  assert.deepEqual(outside, [], `links of ${reader.page.url()}`);
  return [...new Set(found.filter((href) => href.startsWith("/")).map((href) => href.split("#")[0]))];
}

/** Opens each page on a screen: status, title, text, axe, width. Follows each link of a kind that was not seen. */
export async function visit(browser, server, rows, screen, repository) {
  const reader = await (await Reader.open(browser, server, SCREENS[screen])).signIn();
  const known = [...routes(repository).keys()];
  const seen = new Set([...rows.map((row) => row.route), ...Object.keys(NO_PAGE)]);
  const strange = [];
  try {
    for (const { name, path, title, text, status } of rows) {
      const response = await reader.goto(path);
      assert.equal(response.status(), status, `${name}: status of ${path}`);
      assert.match(await reader.heading(), title, name);
      assert.ok((await reader.page.locator("main").innerText()).includes(text), `${name}: no ${JSON.stringify(text)}`);
      await reader.isAccessible(`${name}, ${screen}`);
      if (status === 200) reader.isQuiet();
      reader.trouble.length = 0;
      for (const link of await links(reader)) {
        const route = routeOf(link.split("?")[0], known);
        if (!route || !(seen.has(route) || route === "/console/sign-in")) strange.push(`${name}: ${link}`);
      }
    }
    assert.deepEqual(strange, [], "links to pages that the table lacks");
  } finally {
    await reader.close();
  }
  return rows.length;
}

/** Opens each page without JavaScript, and compares it with the page of a browser that has it. */
export async function withoutScripts(browser, server, rows) {
  const reader = await (await Reader.open(browser, server, { javaScriptEnabled: false })).signIn();
  try {
    for (const { name, path, title, text, status } of rows) {
      const response = await reader.goto(path);
      assert.equal(response.status(), status, name);
      assert.match(await reader.heading(), title, name);
      assert.ok((await reader.page.locator("main").textContent()).includes(text), `${name}: no ${JSON.stringify(text)}`);
    }
  } finally {
    await reader.close();
  }
}

/** Opens pages with the longest names on a narrow screen, as a caller with such a name. */
export async function longNames(browser, server) {
  const longest = (letter) => letter.repeat(63);
  const [name, plugin] = [longest("s"), longest("p")];
  const token = await server.ebb("token", "create", longest("t"), "--scope", "read");
  await server.apply(plugin, chains(plugin, 3, 3, 0));
  const { runs } = await create(server, name, "ready", { plugin: `${plugin}@1.0.0`, params: {} });
  const unit = `?unit=${encodeURIComponent(runs[0].units[0].unit)}`;
  const pages = [`targets/sandbox/${name}`, `targets/sandbox/${name}/history`, `plugins/${plugin}`, "plugins"];
  pages.push("targets");
  pages.push(`targets/sandbox/${name}${unit}&run=${runs[0].id}`, `runs/${runs[0].id}/log${unit}`, `runs/${runs[0].id}/log`);
  const reader = await (await Reader.open(browser, server, SCREENS.narrow)).signIn(token.trim());
  try {
    for (const page of pages) {
      const response = await reader.goto(`/console/${page}`);
      assert.equal(response.status(), 200, page);
      await reader.isAccessible(`${page} with long names`);
    }
  } finally {
    await reader.close();
  }
}

/** Writes a long note into each row of a run, and fails if the last column of its units is hidden. */
export async function longNotes(browser, server, { name, run }) {
  const reader = await (await Reader.open(browser, server, { viewport: { width: 1280, height: 720 } })).signIn();
  try {
    for (const path of [`/console/targets/sandbox/${name}?run=${run}`, `/console/targets/sandbox/${name}`]) {
      await reader.goto(path);
      const excess = await reader.page.locator(".wide:has(.waterfall)").first().evaluate((box) => {
        for (const note of box.querySelectorAll(".note")) note.textContent = `no answer from https://${"x".repeat(300)}`;
        return box.scrollWidth - box.clientWidth;
      });
      assert.ok(excess <= 0, `${path}: the units are ${excess} px wider than their box`);
    }
  } finally {
    await reader.close();
  }
}

/** Returns the most bytes that a first visit of a page transfers, with headers, and the page. */
export async function firstLoad(browser, server, rows) {
  let most = { bytes: 0 };
  const { storageState } = await session(browser, server);
  for (const { name, path } of rows) {
    const reader = await Reader.open(browser, server, { storageState });
    const protocol = await reader.context.newCDPSession(reader.page);
    let bytes = 0;
    protocol.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
    await protocol.send("Network.enable");
    await reader.page.goto(path, { waitUntil: "networkidle" });
    await reader.close();
    assert.ok(bytes > 1_000, `${name}: ${bytes} bytes`);
    if (bytes > most.bytes) most = { name, bytes };
  }
  assert.ok(most.bytes < MAX_FIRST_LOAD, `the first load of ${most.name} has ${most.bytes} bytes`);
  return most;
}

/** Signs in, and returns the cookies for other browsers. */
export async function session(browser, server) {
  const reader = await (await Reader.open(browser, server)).signIn();
  const storageState = await reader.context.storageState();
  await reader.close();
  return { storageState };
}
