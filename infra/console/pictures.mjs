// Pictures of the main pages for the book. The test compares the pages with them.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pixelmatch from "pixelmatch";
import { PNG } from "pngjs";
import { Reader, SCREENS } from "./browser.mjs";

/** The share of pixels that may differ, for other versions of Chromium. */
const MAX_DIFFERENT = 0.01;
/** Maximum bytes of all pictures. */
const MAX_BYTES = 1_300_000;
/** The time of pages that were recorded. */
const RECORDED = "2026-12-01T12:40:00Z";
/** The recorded pages, which `shared/console/src/tests.rs` makes of answers of a server. */
const SNAPSHOTS = "shared/console/src/snapshots/ebb_console__tests__";
/** Maximum colours of a picture. */
const MAX_COLOURS = 96;
/** Maximum height of a picture in pixels, and that of a recorded page. */
const MAX_HEIGHT = 720;
const MAX_RECORDED = 1_160;

/** The pages by the names of their pictures. A recorded page has the name of its snapshot. */
const shown = ({ wide }) => ({
  overview: "/console",
  targets: "/console/targets",
  run: `/console/targets/sandbox/${wide.name}`,
  plugin: "/console/plugins/notes?from=1.0.0&to=1.1.0",
  // Their browser has a fixed time.
  failed: "failed_target",
  ready: "ready_target",
  parts: "parts",
});

/** Replaces what differs between two servers: times, durations, names of runs and instances, folders and ports. */
function fix(isLive) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    * { font-family: "Liberation Sans" !important; caret-color: transparent !important; }
    code, code *, pre, pre *, svg text { font-family: "Liberation Mono" !important; }
  `);
  document.adoptedStyleSheets = [sheet];
  if (!isLive) return;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    node.data = node.data
      .replace(/\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?/g, "2026-01-02 03:04:05")
      .replace(/\b\d+(\.\d+)? ?(ms|s|m)\b( \d+ ?s\b)?/g, "1 s")
      .replace(/\b[a-z2-7]{16}-(\d+)-/g, "abcdefgh23456789-$1-")
      .replace(/\bapi-[a-z2-7]{32}\b/g, "api-abcdefghijklmnopqrstuvwxyz234567")
      .replace(/\/var\/tmp\/ebb-console-\w+/g, "/var/notes")
      .replace(/(127\.0\.0\.1):\d+/g, "$1:8080");
  }
  // Bars depend on times.
  for (const part of document.querySelectorAll(".bars svg")) part.remove();
}

/** Opens a recorded page with the style and the script of the server. */
async function recorded(reader, repository, name) {
  const { page } = reader;
  const [, snapshot] = readFileSync(join(repository, `${SNAPSHOTS}${name}.snap`), "utf8").split("\n---\n");
  await page.goto("/console/sign-in");
  const path = (selector, attribute) => page.locator(selector).getAttribute(attribute);
  const assets = { STYLE: await path("link[rel=stylesheet]", "href"), SCRIPT: await path("script", "src"), ICON: await path("link[rel=icon]", "href") };
  const body = snapshot.replace(/"(STYLE|SCRIPT|ICON)"/g, (_, asset) => `"${assets[asset]}"`);
  await page.route("**/console/recorded", (route) => route.fulfill({ contentType: "text/html; charset=utf-8", body }));
  await page.clock.setFixedTime(RECORDED);
  await page.goto("/console/recorded", { waitUntil: "load" });
  await reader.isAccessible(name);
}

/** Replaces each rare colour by the nearest frequent one, so that a file is small. */
function reduced(png) {
  const pixels = new Uint32Array(png.data.buffer, png.data.byteOffset, png.data.length / 4);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const colours = [...counts].sort(([, one], [, other]) => other - one).map(([colour]) => colour);
  const frequent = colours.slice(0, MAX_COLOURS);
  const distance = (one, other) => [0, 8, 16].reduce((sum, bits) => sum + (((one >> bits) & 255) - ((other >> bits) & 255)) ** 2, 0);
  const nearest = new Map(frequent.map((colour) => [colour, colour]));
  for (const colour of colours.slice(MAX_COLOURS)) {
    nearest.set(colour, frequent.reduce((best, it) => (distance(it, colour) < distance(best, colour) ? it : best)));
  }
  pixels.forEach((pixel, at) => (pixels[at] = nearest.get(pixel)));
  return png;
}

async function picture(reader, repository, path) {
  const isLive = path.startsWith("/");
  const { width } = reader.page.viewportSize();
  const most = isLive ? MAX_HEIGHT : MAX_RECORDED;
  await reader.page.setViewportSize({ width, height: most });
  if (isLive) await reader.goto(path);
  else await recorded(reader, repository, path);
  await reader.page.evaluate(fix, isLive);
  await reader.page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))");
  const height = await reader.page.evaluate("document.documentElement.scrollHeight");
  const clip = { x: 0, y: 0, width, height: Math.min(height, most) };
  return reduced(PNG.sync.read(await reader.page.screenshot({ clip, fullPage: true, animations: "disabled" })));
}

/** Compares each page on each screen with its picture in the book, or writes the pictures. Returns their bytes. */
export async function pictures(browser, server, names, repository, { write, output }) {
  const folder = join(repository, "docs/src/pictures/console");
  if (write) mkdirSync(folder, { recursive: true });
  const different = [];
  let bytes = 0;
  for (const [screen, options] of Object.entries(SCREENS)) {
    const reader = await (await Reader.open(browser, server, { ...options, reducedMotion: "reduce" })).signIn();
    for (const [name, path] of Object.entries(shown(names))) {
      const found = await picture(reader, repository, path);
      const file = join(folder, `${name}-${screen}.png`);
      const encoded = PNG.sync.write(found, { deflateLevel: 9, deflateStrategy: 0, colorType: 2, filterType: 0 });
      bytes += encoded.length;
      if (write) {
        writeFileSync(file, encoded);
        continue;
      }
      const shot = join(output, `${name}-${screen}.png`);
      writeFileSync(shot, encoded);
      if (!existsSync(file)) {
        different.push(`${file} is missing`);
        continue;
      }
      const expected = PNG.sync.read(readFileSync(file));
      if (expected.width !== found.width || expected.height !== found.height) {
        different.push(`${file} is ${expected.width}×${expected.height}, the page ${found.width}×${found.height}: ${shot}`);
        continue;
      }
      const differing = pixelmatch(expected.data, found.data, null, found.width, found.height, { threshold: 0.2 });
      const share = differing / (found.width * found.height);
      if (share > MAX_DIFFERENT) different.push(`${(share * 100).toFixed(1)} % of ${file} differ from ${shot}`);
    }
    await reader.close();
  }
  assert.deepEqual(different, [], "pictures; `cargo xtask verify console -- --write-pictures` makes them again");
  assert.ok(bytes <= MAX_BYTES, `all pictures have ${bytes} bytes`);
  return bytes;
}
