// The conformance suite of the protocol against a server, for each version that the suite has checks for.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { proxy } from "./dev.mjs";

const VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"];
const here = (path) => new URL(path, import.meta.url).pathname;

/** The suite needs Node.js 22. Packages bring it for Linux. */
function node() {
  const packaged = here(`node_modules/node-linux-${process.arch}/bin/node`);
  return process.platform === "linux" && existsSync(packaged) ? packaged : process.execPath;
}

/** Returns the exit code and the output of the suite. */
function run(url, version) {
  const suite = here("node_modules/@modelcontextprotocol/conformance/dist/index.js");
  const options = ["--suite", "all", "--spec-version", version, "--expected-failures", here("expected.yaml")];
  const words = [suite, "server", "--url", `${url}/mcp`, ...options];
  return new Promise((done) => {
    execFile(node(), words, { maxBuffer: 64 << 20 }, (error, out, errors) => done({ code: error ? (error.code ?? 1) : 0, text: out + errors }));
  });
}

/** Runs all versions. Returns the passed checks by version, and the number of checks that do not apply. */
export async function conformance(server) {
  const { http, url } = await proxy(server);
  const figures = {};
  const found = new Set();
  try {
    for (const version of VERSIONS) {
      const { code, text } = await run(url, version);
      const total = text.match(/^Total: (\d+) passed/m);
      assert.ok(code === 0 && total, `the suite for ${version} ended with ${code}:\n${text}`);
      figures[version] = Number(total[1]);
      for (const [, check] of text.matchAll(/^ {2}~ (\S+)$/gm)) found.add(check);
    }
  } finally {
    http.close();
  }
  // The suite tolerates entries that it does not report.
  const expected = [...readFileSync(here("expected.yaml"), "utf8").matchAll(/^ {2}- (\S+)$/gm)].map(([, check]) => check);
  assert.deepEqual([...found].sort(), expected.sort());
  return { ...figures, "do not apply": expected.length };
}
