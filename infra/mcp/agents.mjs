// Checks the MCP server of `ebb dev`: the conformance suite of the protocol, and tasks of a coding agent.
//
//   node agents.mjs --ebb PROGRAM --repository FOLDER

import { parseArgs } from "node:util";
import { conformance } from "./conformance.mjs";
import { start } from "./dev.mjs";
import { tasks } from "./tasks.mjs";

const { values } = parseArgs({
  options: { ebb: { type: "string" }, repository: { type: "string", default: "." } },
});
const server = await start(values.ebb);
try {
  console.log("passed checks of the suite:", await conformance(server));
  console.log("calls of the tasks:", await tasks(server, values.repository));
} finally {
  await server.stop();
}
