// Chromium, sessions of the console, and the ways in which a reader acts: by pointer, by keys, and without JavaScript.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Maximum milliseconds of an expectation. A page without news asks every 15 s. */
export const PATIENCE = 25_000;
/** The screens on which each page is checked. */
export const SCREENS = {
  light: { viewport: { width: 1100, height: 720 }, colorScheme: "light" },
  dark: { viewport: { width: 1100, height: 720 }, colorScheme: "dark" },
  narrow: { viewport: { width: 390, height: 720 }, colorScheme: "light" },
};

/** Starts Debian's Chromium. The options keep the rendering of text the same on each machine. */
export const launch = () =>
  chromium.launch({
    executablePath: process.env.EBB_CHROMIUM || "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--no-proxy-server",
      "--disable-dev-shm-usage",
      "--disable-lcd-text",
      "--font-render-hinting=none",
      "--force-color-profile=srgb",
      "--enable-precise-memory-info",
    ],
  });

/** Waits until `probe` returns a true value, and returns it. */
export async function until(what, probe, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${patience / 1000} s: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

/** A browser with cookies of its own, at a server. `trouble` has errors of scripts, failed requests and dialogs. */
export class Reader {
  static async open(browser, server, options = {}) {
    const reader = new Reader();
    reader.server = server;
    reader.context = await browser.newContext({ ...SCREENS.light, baseURL: server.url, ...options });
    reader.context.setDefaultTimeout(PATIENCE);
    reader.page = await reader.context.newPage();
    reader.trouble = [];
    reader.page.on("console", (line) => line.type() === "error" && reader.trouble.push(line.text()));
    reader.page.on("pageerror", (error) => reader.trouble.push(String(error)));
    reader.page.on("dialog", (dialog) => {
      reader.trouble.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    return reader;
  }

  /** Opens a path of the console and returns the response. */
  async goto(path) {
    return this.page.goto(path, { waitUntil: "load" });
  }

  /** Signs in with a token by the form. It is closed if the server has an issuer. */
  async signIn(token = this.server.token) {
    await this.goto("/console");
    const closed = this.page.locator("details:not([open]) > summary");
    if ((await closed.count()) > 0) await closed.click();
    await this.page.getByLabel("API token").fill(token);
    await this.page.getByRole("button", { name: "Sign in", exact: true }).click();
    await this.page.getByRole("button", { name: "Sign out" }).waitFor();
    return this;
  }

  heading() {
    return this.page.locator("h1").innerText();
  }

  /** Waits until the title of the page matches, without a request of this test. */
  async shows(pattern, patience = PATIENCE) {
    return until(`${pattern} in the title of ${this.page.url()}`, async () => pattern.test(await this.heading().catch(() => "")), patience);
  }

  /** Fails if axe reports a violation, or if the page is wider than the screen. */
  async isAccessible(where) {
    const found = await this.page.evaluate(`${AXE}; axe.run(document).then((found) => found.violations.map(
      (it) => it.id + ": " + it.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")))`);
    assert.deepEqual(found, [], `axe on ${where}`);
    const excess = await this.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert.ok(excess <= 0, `${where} is ${excess} px wider than the screen`);
  }

  /** Fails if a script reported an error. */
  isQuiet() {
    assert.deepEqual(this.trouble.splice(0), [], `errors at ${this.page.url()}`);
  }

  close() {
    return this.context.close();
  }
}

/** Acts with the pointer, and counts clicks. */
export class Pointer {
  constructor(reader) {
    this.reader = reader;
    this.clicks = 0;
  }

  #find(role, name) {
    return this.reader.page.getByRole(role, { name, exact: typeof name === "string" }).first();
  }

  /** Uses a link, a button, a box or the title of a part. */
  async use(role, name) {
    this.clicks += 1;
    await this.#find(role, name).click();
  }

  async write(label, text) {
    await this.reader.page.getByLabel(label, { exact: true }).fill(text);
  }

  async choose(label, text) {
    await this.reader.page.getByLabel(label, { exact: true }).selectOption({ label: text });
  }

  async follow(locator) {
    this.clicks += 1;
    await locator.click();
  }

  /** Opens or closes a part of the page. */
  async unfold(name) {
    this.clicks += 1;
    await this.reader.page.locator("summary", { hasText: name }).first().click();
  }
}

/** Acts with keys only: it reaches each element by the key Tab. */
export class Keys {
  constructor(reader) {
    this.reader = reader;
  }

  /** Presses Tab until an element has the focus, from the present one on. */
  async #reach(locator, what) {
    await locator.waitFor();
    const { keyboard } = this.reader.page;
    for (let presses = 0; presses < 400; presses += 1) {
      const hasFocus = await locator.evaluate((element) => element === document.activeElement);
      if (hasFocus) {
        const outline = await locator.evaluate((element) => getComputedStyle(element).outlineStyle);
        assert.notEqual(outline, "none", `the focus of ${what} is not visible`);
        return;
      }
      await keyboard.press("Tab");
    }
    throw new Error(`the key Tab does not reach ${what} on ${this.reader.page.url()}`);
  }

  async use(role, name) {
    const locator = this.reader.page.getByRole(role, { name, exact: typeof name === "string" }).first();
    await this.#reach(locator, `${role} ${name}`);
    await this.reader.page.keyboard.press(role === "checkbox" ? "Space" : "Enter");
  }

  async write(label, text) {
    const field = this.reader.page.getByLabel(label, { exact: true });
    await this.#reach(field, `field ${label}`);
    await this.reader.page.keyboard.press("Control+A");
    await this.reader.page.keyboard.type(text);
  }

  async choose(label, text) {
    const field = this.reader.page.getByLabel(label, { exact: true });
    await this.#reach(field, `field ${label}`);
    const options = await field.locator("option").allInnerTexts();
    assert.ok(options.includes(text), `${label} has ${options}, without ${text}`);
    await this.reader.page.keyboard.press("Home");
    for (let at = 0; at < options.indexOf(text); at += 1) await this.reader.page.keyboard.press("ArrowDown");
    const chosen = () => field.evaluate((element) => element.selectedOptions[0].text);
    assert.equal(await chosen(), text, `option of ${label}`);
  }

  /** Reaches an element and presses Enter. */
  async follow(locator, what) {
    await this.#reach(locator, what);
    await this.reader.page.keyboard.press("Enter");
  }

  async unfold(name) {
    await this.#reach(this.reader.page.locator("summary", { hasText: name }).first(), `part ${name}`);
    await this.reader.page.keyboard.press("Enter");
  }
}
