// `ebb dev` in a folder of its own, and a proxy that adds its token.

import { execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer, request as forward } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";

/** The maximum milliseconds that a test waits for something. */
const PATIENCE = 60_000;

/** Waits until `probe` returns a true value, and returns it. */
export async function until(what, probe) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${PATIENCE / 1000} s: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

/** Starts the server of `program`. Returns its URL, its token, its folder, a function that runs `ebb`, and one that stops it. */
export async function start(program) {
  // A script has a folder /tmp of its own.
  const folder = mkdtempSync("/var/tmp/ebb-mcp-");
  const log = join(folder, "ebb.log");
  const output = openSync(log, "w");
  const child = spawn(program, ["dev", "--port", "0", "--s3-port", "0"], { cwd: folder, stdio: ["ignore", output, output] });
  const ended = new Promise((wake) => child.once("exit", wake));
  const file = join(folder, ".ebb/server.json");
  await until("ebb dev responds", async () => {
    if (child.exitCode !== null) throw new Error(`ebb dev does not start: ${readFileSync(log, "utf8")}`);
    return existsSync(file) && fetch(JSON.parse(readFileSync(file, "utf8")).url).then(() => true, () => false);
  });
  const ebb = async (...words) => (await promisify(execFile)(program, words, { cwd: folder })).stdout;
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
    // Scripts can write until they end.
    rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  };
  return { ...JSON.parse(readFileSync(file, "utf8")), folder, ebb, stop };
}

/** Starts a proxy of a server for clients that send no token. Returns it with its URL. */
export async function proxy({ url, token }) {
  const { hostname, port } = new URL(url);
  const http = createServer((incoming, outgoing) => {
    const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
    const sent = forward({ hostname, port, method: incoming.method, path: incoming.url, headers }, (response) => {
      outgoing.writeHead(response.statusCode, response.rawHeaders);
      response.pipe(outgoing);
    });
    sent.on("error", () => outgoing.destroy());
    incoming.pipe(sent);
  });
  await new Promise((wake) => http.listen(0, "127.0.0.1", wake));
  return { http, url: `http://127.0.0.1:${http.address().port}` };
}
