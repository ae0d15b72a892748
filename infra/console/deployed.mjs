// A short pass over a deployed server: all pages that its navigation leads to, and one action by keys.

import assert from "node:assert/strict";
import { Keys, Reader } from "./browser.mjs";
import { NO_PAGE, links, reachable, routeOf, routes } from "./pages.mjs";

/** Visits one page of each route, from the navigation on, and deletes the sandbox `name`. */
export async function deployed(browser, server, { name, repository, step }) {
  const known = [...routes(repository).keys()];
  const reader = await Reader.open(browser, server);
  const by = new Keys(reader);
  await step("sign in by keys", async () => {
    await reader.goto("/console");
    if ((await reader.page.locator("details:not([open])").count()) > 0) await by.unfold("Use a token");
    await by.write("API token", server.token);
    await by.use("button", "Sign in");
    await reader.page.getByRole("button", { name: "Sign out" }).waitFor();
  });
  await step("a page of each route", async () => {
    const visited = new Map();
    const ahead = [...reachable, `/console/targets/sandbox/${encodeURIComponent(name)}`];
    while (ahead.length > 0) {
      const path = ahead.shift();
      const route = routeOf(path.split("?")[0], known);
      assert.ok(route, `a link leads to ${path}, which is no page`);
      if (visited.has(route) || route in NO_PAGE) continue;
      visited.set(route, path);
      const response = await reader.goto(path);
      assert.equal(response.status(), 200, path);
      await reader.isAccessible(path);
      reader.isQuiet();
      ahead.push(...(await links(reader)));
    }
    const needed = ["/console/targets/{kind}/{name}", "/console/runs/{run}/log", "/console/plugins/{name}", "/console/targets/{kind}/{name}/history"];
    assert.deepEqual(needed.filter((route) => !visited.has(route)), [], "routes that no link led to");
    return visited.size;
  });
  await step("delete a sandbox by keys", async () => {
    const path = `/console/targets/sandbox/${encodeURIComponent(name)}`;
    await reader.goto(path);
    await by.use("link", "Delete…");
    await by.use("button", `Delete sandbox/${name}`);
    await reader.page.waitForURL(`**${path}`);
    await reader.shows(/gone/, 120_000);
    reader.isQuiet();
  });
  await step("sign out by keys", async () => {
    await by.use("button", "Sign out");
    await reader.page.waitForURL("**/console/sign-out");
  });
  await reader.close();
}
