// Measures the console with many targets, a large run and a large log. It prints figures and compares none.

import { Reader, until } from "./browser.mjs";
import { chains, create, sandbox } from "./seed.mjs";

/** Requests of the preparation at a time. */
const CALLERS = 16;

/** Opens a page in a new browser. Returns its bytes and its times in milliseconds. */
async function open(browser, server, path) {
  const reader = await (await Reader.open(browser, server)).signIn();
  const protocol = await reader.context.newCDPSession(reader.page);
  let bytes = 0;
  protocol.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
  await protocol.send("Network.enable");
  await reader.page.goto(path, { waitUntil: "networkidle" });
  const times = await reader.page.evaluate(() => {
    const [navigation] = performance.getEntriesByType("navigation");
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    const round = (value) => Math.round(value);
    return { firstByteMs: round(navigation.responseStart), firstPaintMs: round(paint?.startTime ?? Number.NaN), loadMs: round(navigation.loadEventEnd) };
  });
  return { reader, figures: { bytes, ...times } };
}

/** Opens a page, changes something, and measures until the page shows it. */
async function changed(browser, server, path, change, selector, text) {
  const { reader, figures } = await open(browser, server, path);
  await change();
  const began = Date.now();
  const shown = async () => (await reader.page.locator(selector).allInnerTexts()).some((found) => found.includes(text));
  await until(`${text} on ${path}`, shown, 120_000);
  await reader.close();
  return { ...figures, visibleMs: Date.now() - began };
}

/** Measures all cases. */
export async function scale(browser, server, { targets, units, mebibytes, step }) {
  await server.apply("tiny", chains("tiny", 1, 1, 0));
  await server.apply("large", chains("large", units, 20, 0.2));
  await server.apply("slow", chains("slow", 1, 1, 5));
  await server.apply("verbose", `apiVersion: ebb.dev/v1
kind: Plugin
name: verbose@1.0.0
runners: {shell: {image: "busybox:1.36"}}
defaults: {timeout: 30m, retry: {attempts: 1}}
preStart:
  write:
    cleanup: none
    pod: {script: "#!/bin/sh\\nyes 'a line of a log with some fifty characters in it' | head -c ${mebibytes * 1024 * 1024}\\nwhile [ ! -e ${server.folder}/switches/log.hold ]; do sleep 1; done\\necho the last line\\nsleep 8\\n"}
`);
  await step(`${units} units: a page of the running target`, async () => {
    await create(server, "large", "starting", { plugin: "large@1.0.0", params: {} });
    const path = "/console/targets/sandbox/large";
    const opened = await open(browser, server, path);
    await until("the run has ended in the page", async () => /ready/.test(await opened.reader.heading()), 600_000);
    await opened.reader.close();
    return opened.figures;
  });
  await step(`${units} units: the page of the target after its end`, async () => {
    const opened = await open(browser, server, "/console/targets/sandbox/large");
    await opened.reader.close();
    return opened.figures;
  });
  await step(`${units} units: the page of the run`, async () => {
    const { runs } = await server.target("large");
    const opened = await open(browser, server, `/console/targets/sandbox/large?run=${runs.at(-1).id}`);
    await opened.reader.close();
    return opened.figures;
  });
  await step(`a log of ${mebibytes} MiB`, async () => {
    await create(server, "verbose", "starting", { plugin: "verbose@1.0.0", params: {} });
    const { runs } = await server.target("verbose");
    const path = `/console/runs/${runs.at(-1).id}/log?unit=note%2Fwrite`;
    await new Promise((wake) => setTimeout(wake, 5_000));
    const figures = await changed(browser, server, path, async () => server.set("log", "hold"), ".listing", "the last line");
    const opened = await open(browser, server, path);
    const shown = await opened.reader.page.locator(".listing").innerText();
    await opened.reader.close();
    return { ...figures, shownBytes: shown.length };
  });
  await step(`${targets} targets: their creation`, async () => {
    let next = 0;
    const caller = async () => {
      while (next < targets) {
        const name = `many-${String((next += 1)).padStart(5, "0")}`;
        await server.api("POST", "/v1/targets", { kind: "sandbox", name, document: sandbox(name, { plugin: "tiny@1.0.0", params: {}, team: `team-${next % 12}` }) });
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, caller));
    await until("all targets are ready", async () => (await server.api("GET", "/v1/targets?phase=starting")).targets.length === 0, 3_600_000);
  });
  await step(`${targets} targets: the list`, () =>
    changed(browser, server, "/console/targets", () => create(server, "a-new-one", "starting", { plugin: "slow@1.0.0", params: {} }), "tbody", "a-new-one"),
  );
  await step(`${targets} targets: the overview`, async () => {
    const opened = await open(browser, server, "/console");
    await opened.reader.close();
    return opened.figures;
  });
  for (const [name, query] of Object.entries({ "a phase": "phase=ready", "a label": "label=team%3Dteam-7", "a text": "q=many-09", "a name": "q=many-09999" })) {
    await step(`${targets} targets: the list, filtered by ${name}`, async () => {
      const opened = await open(browser, server, `/console/targets?${query}`);
      await opened.reader.close();
      return opened.figures;
    });
  }
}
