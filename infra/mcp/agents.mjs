// Checks the MCP server of `ebb dev`: the conformance suite of the protocol, and tasks of a coding agent.
//
//   node agents.mjs --ebb PROGRAM

import { parseArgs } from "node:util";
import { conformance } from "./conformance.mjs";
import { start } from "./dev.mjs";
import { tasks } from "./tasks.mjs";

const { values } = parseArgs({ options: { ebb: { type: "string" } } });
const server = await start(values.ebb);
try {
  console.log("passed checks of the suite:", await conformance(server));
  console.log("calls of the tasks:", await tasks(server));
} finally {
  await server.stop();
}
