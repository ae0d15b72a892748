// A server with a console: `ebb dev` with things to look at, or a deployed one behind a path.

import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as forward } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "./browser.mjs";
import { CLIENT_SECRET, Issuer } from "./issuer.mjs";

const SECRETS = {
  EVENTS_SECRET: `whsec_${Buffer.alloc(32, 7).toString("base64")}`,
  GITLAB_WEBHOOK: "secret-of-gitlab",
  CONSOLE_CLIENT: CLIENT_SECRET,
};

/** A server by its URL and a token. */
class ApiServer {
  constructor(url, token) {
    this.url = url.replace(/\/$/, "");
    this.token = token;
  }

  /** Sends a request to the API as the operator. Fails if the status is not 2xx. */
  async api(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    const response = await fetch(`${this.url}${path}`, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  target(name) {
    return this.api("GET", `/v1/targets/sandbox/${encodeURIComponent(name)}`);
  }

  /** Waits until a sandbox has a phase, and returns it. */
  async phase(name, phase) {
    const has = async () => {
      const target = await this.target(name).catch(() => null);
      return target?.phase === phase && target;
    };
    return until(`${name} is ${phase}`, has).catch(async ({ message }) => {
      const why = await this.api("GET", `/v1/targets/sandbox/${encodeURIComponent(name)}/why`);
      throw new Error(`${message}: ${JSON.stringify(why)}`);
    });
  }
}

/** `ebb dev` in a folder of its own, with an issuer at which people sign in. Scripts of its sandboxes ask files of the folder what they have to do. */
export class LocalServer extends ApiServer {
  static async start(program) {
    // A script has a folder /tmp of its own.
    const folder = mkdtempSync("/var/tmp/ebb-console-");
    for (const part of ["state", "switches", "documents"]) mkdirSync(join(folder, part), { mode: 0o700 });
    writeFileSync(join(folder, "state/secrets.json"), JSON.stringify(SECRETS), { mode: 0o600 });
    const log = join(folder, "ebb.log");
    const output = openSync(log, "w");
    const options = ["dev", "--port", "0", "--s3-port", "0", "--state", join(folder, "state")];
    const issuer = await Issuer.start();
    const env = { ...process.env, EBB_OIDC: issuer.entries() };
    const child = spawn(program, options, { cwd: folder, env, stdio: ["ignore", output, output] });
    const file = join(folder, "state/server.json");
    const failed = () => new Error(`ebb dev does not start: ${readFileSync(log, "utf8")}`);
    await until("ebb dev prints the link of the console", () => {
      if (child.exitCode !== null) throw failed();
      return existsSync(file) && /code=\S+/.test(readFileSync(log, "utf8"));
    });
    const { url, token } = JSON.parse(readFileSync(file, "utf8"));
    const server = new LocalServer(url, token);
    issuer.serve(server.url);
    return Object.assign(server, { program, folder, child, issuer, link: readFileSync(log, "utf8").match(/http\S+code=\S+/)[0] });
  }

  /** Runs `ebb` with this server. Returns its output. */
  async ebb(...words) {
    const env = { ...process.env, EBB_URL: this.url, EBB_TOKEN: this.token };
    const { stdout } = await promisify(execFile)(this.program, words, { cwd: this.folder, env });
    return stdout;
  }

  /** Applies a document. `name` is that of its file. */
  async apply(name, text, ...options) {
    const file = join(this.folder, "documents", `${name.replace(/\W/g, "-")}.yaml`);
    writeFileSync(file, text);
    return this.ebb("apply", "-f", file, "--allow-replace", ...options);
  }

  /** Sets what the scripts of a topic do: `broken` and `kept` fail setup and teardown, `hold` makes both wait. */
  set(topic, ...modes) {
    for (const mode of ["broken", "hold", "kept"]) {
      const file = join(this.folder, "switches", `${topic}.${mode}`);
      if (modes.includes(mode)) writeFileSync(file, "");
      else rmSync(file, { force: true });
    }
  }

  async stop() {
    this.issuer.stop();
    const ended = new Promise((wake) => this.child.once("exit", wake));
    if (this.child.exitCode === null) {
      this.child.kill("SIGTERM");
      await ended;
    }
    // Scripts that wait for a switch end without the folder, and can write until then.
    await until(`${this.folder} can be removed`, () => {
      try {
        rmSync(this.folder, { recursive: true, force: true });
        return true;
      } catch (error) {
        if (error.code !== "ENOTEMPTY") throw error;
        return false;
      }
    });
  }
}

/** A deployed server. If its URL has a path, a proxy on this machine serves it at `/`, as a domain name does. */
export class DeployedServer extends ApiServer {
  static async reach(url, token) {
    const { origin, host, hostname, port, pathname } = new URL(url);
    const prefix = pathname.replace(/\/$/, "");
    if (!prefix) return new DeployedServer(url, token);
    const proxy = createServer((incoming, outgoing) => {
      const headers = { ...incoming.headers, host };
      if (headers.origin) headers.origin = origin;
      const options = { hostname, port, method: incoming.method, path: prefix + incoming.url, headers };
      const sent = forward(options, (response) => {
        outgoing.writeHead(response.statusCode, response.headers);
        response.pipe(outgoing);
      });
      sent.on("error", () => outgoing.destroy());
      incoming.pipe(sent);
    });
    await new Promise((wake) => proxy.listen(0, "127.0.0.1", wake));
    return Object.assign(new DeployedServer(`http://127.0.0.1:${proxy.address().port}`, token), { proxy });
  }

  async stop() {
    this.proxy?.closeAllConnections();
    this.proxy?.close();
  }
}
