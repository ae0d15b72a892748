// Drives every page and action of the console in Chromium.
//
//   node console.mjs --ebb PROGRAM --repository FOLDER [--write-pictures] [--memory-seconds N] [--only TEXT]
//   node console.mjs --ebb PROGRAM --scale                     prints measurements of large cases
//   EBB_TOKEN=… node console.mjs --url URL --delete NAME       a deployed server: all pages, and the deletion of a sandbox

import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { launch } from "./browser.mjs";
import { ACTIONS, act, byLink, forms, ways } from "./actions.mjs";
import { deployed } from "./deployed.mjs";
import { memory, renewals } from "./live.mjs";
import { firstLoad, isComplete, longNames, longNotes, pages, visit, withoutScripts, world } from "./pages.mjs";
import { pictures } from "./pictures.mjs";
import { repairs } from "./repairs.mjs";
import { scale } from "./scale.mjs";
import { seed } from "./seed.mjs";
import { tasks } from "./tasks.mjs";
import { DeployedServer, LocalServer } from "./server.mjs";

const { values } = parseArgs({
  options: {
    ebb: { type: "string" },
    repository: { type: "string", default: "." },
    output: { type: "string", default: "." },
    "write-pictures": { type: "boolean", default: false },
    "memory-seconds": { type: "string", default: "60" },
    only: { type: "string", default: "" },
    scale: { type: "boolean", default: false },
    targets: { type: "string", default: "10000" },
    units: { type: "string", default: "1000" },
    "log-mib": { type: "string", default: "100" },
    url: { type: "string" },
    delete: { type: "string" },
  },
});

let failed = 0;
let passed = 0;

/** Runs a step and prints its result. A failure does not stop the next steps. */
async function step(name, work) {
  if (!name.includes(values.only)) return;
  const began = Date.now();
  const line = (result, text) => console.log(`${result} ${name}: ${((Date.now() - began) / 1000).toFixed(1)} s${text}`);
  try {
    const figures = await work();
    passed += 1;
    line("ok", figures === undefined ? "" : `, ${JSON.stringify(figures)}`);
  } catch (error) {
    failed += 1;
    line("FAILED", `\n${error.stack}`);
  }
}

async function local(browser, server) {
  const phases = await seed(server);
  const names = await world(server, phases);
  const rows = pages(names);
  const { repository } = values;
  await step("sign in by link", () => byLink(browser, server));
  await step("every route has a row", () => isComplete(repository, rows, forms));
  const output = resolve(values.output, "pictures");
  mkdirSync(output, { recursive: true });
  const options = { write: values["write-pictures"], output };
  await step("pictures", () => pictures(browser, server, names, repository, options));
  if (values["write-pictures"]) return;
  for (const screen of ["light", "dark", "narrow"]) {
    await step(`all pages, ${screen}`, () => visit(browser, server, rows, screen, repository));
  }
  await step("all pages without JavaScript", () => withoutScripts(browser, server, rows));
  await step("first load", () => firstLoad(browser, server, rows));
  for (const action of ACTIONS) {
    for (const way of ways) await step(`${action.name}, ${way}`, () => act(browser, server, names, action, way));
  }
  await step("long names", () => longNames(browser, server));
  await step("long notes", () => longNotes(browser, server, names.failed));
  await step("renewals", () => renewals(browser, server));
  await step("ten repairs", () => repairs(browser, server, repository));
  await step("five tasks", () => tasks(browser, server));
  await step("memory", () => memory(browser, server, Number(values["memory-seconds"])));
}

const browser = await launch();
const server = values.url ? await DeployedServer.reach(values.url, process.env.EBB_TOKEN) : await LocalServer.start(values.ebb);
try {
  if (values.url) await deployed(browser, server, { name: values.delete, repository: values.repository, step });
  else if (values.scale) await scale(browser, server, { targets: Number(values.targets), units: Number(values.units), mebibytes: Number(values["log-mib"]), step });
  else await local(browser, server);
} finally {
  await browser.close();
  await server.stop();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
