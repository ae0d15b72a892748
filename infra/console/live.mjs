// Open pages that renew themselves, and the memory of their tab.

import assert from "node:assert/strict";
import { Reader, SCREENS, until } from "./browser.mjs";
import { chains, create } from "./seed.mjs";

/** Maximum growth of the memory of a tab after the first quarter, in bytes. */
const MAX_GROWTH = 1 << 20;
/** Maximum growth of the nodes of a tab after the first quarter, in percent. */
const MAX_NODES = 10;

/** Fails if the page was loaded again since `mark`. */
const mark = (reader) => reader.page.evaluate("window.isSamePage = true");
const isSame = async (reader) => assert.ok(await reader.page.evaluate("window.isSamePage === true"), "the page was loaded again");

/** Opens pages, changes what they show, and waits until they show it. Returns the milliseconds of each. */
export async function renewals(browser, server) {
  const times = {};
  const reader = await (await Reader.open(browser, server)).signIn();
  const timed = async (what, change, shown) => {
    await mark(reader);
    await change();
    const began = Date.now();
    await until(what, shown);
    times[what] = Date.now() - began;
    await isSame(reader);
    reader.isQuiet();
  };
  const has = (selector, text) => async () => (await reader.page.locator(selector).allInnerTexts()).join("\n").includes(text);
  try {
    server.set("live", "hold");
    await reader.goto("/console/targets");
    await timed("a new target in the list", () => create(server, "live", "starting"), has("tbody", "sandbox/live"));
    await reader.goto("/console/targets/sandbox/live");
    await timed("the end of a run", async () => server.set("live"), has("h1", "ready"));
    await reader.goto("/console");
    server.set("live-2", "broken");
    await timed("a failure in the overview", () => create(server, "live-2", "failed"), has("main", "sandbox/live-2"));
    server.set("live-log", "hold");
    const { runs } = await create(server, "live-log", "starting");
    const path = (unit) => `/console/runs/${runs[0].id}/log?unit=note%2F${unit}`;
    const box = reader.page.locator(".listing");
    const log = () => box.innerText().catch(() => "");
    const { viewport } = SCREENS.light;
    // The first lines fit into the box.
    await reader.page.setViewportSize({ ...viewport, height: 240 });
    await reader.goto(path("write"));
    await until("the first lines of a log", async () => (await log()).includes("waiting"));
    const { length } = await log();
    await timed("new lines of a log", async () => {}, async () => (await log()).length > length);
    const isAtEnd = (box) => box.scrollTop > 0 && box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    await timed("the end of a log that has become longer than its box", async () => {}, () => box.evaluate(isAtEnd));
    await reader.page.setViewportSize(viewport);
    // The marked line stays marked after a renewal.
    await reader.goto(`${path("write")}#L1`);
    const lines = await reader.page.locator(".log i").count();
    await timed("further lines after a marked one", async () => {}, async () => (await reader.page.locator(".log i").count()) > lines);
    assert.deepEqual(await reader.page.locator(".log :is(i:target, i.target)").evaluateAll((all) => all.map((line) => line.id)), ["L1"]);
    const ids = await reader.page.locator(".log i").evaluateAll((all) => all.map((line) => line.id));
    assert.deepEqual(ids, ids.map((_, at) => `L${at + 1}`));
    await reader.goto(path("index"));
    assert.match(await reader.page.locator("main").innerText(), /The log does not exist: the unit has not started/);
    await timed("a log that begins", async () => server.set("live-log"), async () => (await log()).includes("indexed"));
    await keys(reader);
    // A reader who has written in a field keeps what was written.
    await reader.goto("/console/targets");
    await reader.page.getByLabel("Search", { exact: true }).fill("typed");
    await reader.page.getByRole("button", { name: "Search" }).focus();
    await create(server, "live-3", "ready");
    await reader.page.waitForTimeout(17_000);
    assert.equal(await reader.page.getByLabel("Search", { exact: true }).inputValue(), "typed");
  } finally {
    await reader.close();
  }
  return times;
}

/** Moves through the rows of the list by keys, opens one, and shows the keys. */
async function keys({ page }) {
  await page.goto("/console/targets");
  const current = () => page.locator("tr.current").evaluateAll((all) => all.map((row) => row.rowIndex));
  for (const [key, row] of [["j", 1], ["j", 2], ["k", 1], ["k", 1]]) {
    await page.keyboard.press(key);
    assert.deepEqual(await current(), [row], key);
  }
  await page.goto("/console/plugins");
  await page.keyboard.press("/");
  await page.waitForURL(/targets#search$/);
  await page.keyboard.type("team=shop phase:f");
  const words = await page.locator("#words option").evaluateAll((all) => all.map((option) => option.value));
  assert.ok(words.includes("team=shop phase:failed"), `completion: ${words}`);
  await page.keyboard.press("Escape");
  await page.goto("/console/targets");
  await page.getByRole("link", { name: "Name", exact: true }).click();
  await page.waitForURL(/sort=name/);
  const names = await page.locator("tbody th a").allInnerTexts();
  assert.deepEqual(names, [...names].sort(), "the order of the names");
  await page.goto("/console/targets");
  await page.keyboard.press("j");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog").count(), 0);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/console\/targets\/[a-z]+\//);
  assert.match(await page.locator("time").first().innerText(), /ago$|^in |^\d{4}-/);
}

/** Keeps pages of a run open while its units end. Returns the memory of each tab at the beginning and at the end. */
export async function memory(browser, server, seconds) {
  // Each chain lasts longer than the measurement.
  await server.apply("long", chains("long", 3 * Math.ceil(seconds / 2 + 30), Math.ceil(seconds / 2 + 30), 2));
  server.set("long-log", "hold");
  await create(server, "long-log", "starting");
  await until("the script writes", async () => (await server.target("long-log")).runs[0].units.some((unit) => unit.unit === "note/write" && unit.state === "running"));
  await create(server, "long", "starting", { plugin: "long@1.0.0", params: {} });
  const run = async (name) => (await server.target(name)).runs.at(-1).id;
  const paths = {
    target: "/console/targets/sandbox/long",
    run: `/console/targets/sandbox/long?run=${await run("long")}`,
    log: `/console/runs/${await run("long-log")}/log?unit=note%2Fwrite`,
    list: "/console/targets",
  };
  const tabs = [];
  for (const [name, path] of Object.entries(paths)) {
    // A tab in the background would not be renewed, so each has a browser window of its own.
    const reader = await (await Reader.open(browser, server)).signIn();
    await reader.goto(path);
    await mark(reader);
    let news = 0;
    reader.page.on("response", (response) => (news += response.status() === 200));
    const protocol = await reader.context.newCDPSession(reader.page);
    await protocol.send("HeapProfiler.enable");
    const use = async () => {
      await protocol.send("HeapProfiler.collectGarbage");
      const { usedSize } = await protocol.send("Runtime.getHeapUsage");
      const { nodes, jsEventListeners } = await protocol.send("Memory.getDOMCounters");
      return { bytes: usedSize, nodes, listeners: jsEventListeners };
    };
    tabs.push({ name, reader, use, samples: [], news: () => news });
  }
  const end = Date.now() + seconds * 1000;
  while (Date.now() < end) {
    await new Promise((wake) => setTimeout(wake, Math.min(10_000, (seconds * 1000) / 12)));
    for (const tab of tabs) tab.samples.push(await tab.use());
  }
  const figures = {};
  for (const { name, reader, samples, news } of tabs) {
    await isSame(reader);
    const [first, last] = [samples[Math.floor(samples.length / 4)], samples.at(-1)];
    figures[name] = { renewals: news(), first, last };
    await reader.close();
    assert.ok(last.bytes - first.bytes < MAX_GROWTH, `memory of ${name}: ${JSON.stringify(samples)}`);
    assert.ok(last.listeners <= first.listeners, `listeners of ${name}: ${JSON.stringify(samples)}`);
    const mayGrow = name === "log" || name === "run" ? 2 : 1 + MAX_NODES / 100;
    assert.ok(last.nodes <= first.nodes * mayGrow + 200, `nodes of ${name}: ${JSON.stringify(samples)}`);
  }
  for (const name of ["target", "run", "log"]) assert.ok(figures[name].renewals > seconds / 30, `${name} was not renewed: ${JSON.stringify(figures[name])}`);
  server.set("long-log");
  for (const name of ["long", "long-log"]) await server.ebb("delete", "sandbox", name, "--wait=false");
  return figures;
}
