// The Restate service of `cargo xtask bench peers`: units as durable steps that post to the receiver and await its result.
import http2 from "node:http2";
import * as restate from "@restatedev/restate-sdk";

const { RECEIVER, INGRESS } = process.env;

// The SDK needs this method, which Node.js 20 does not have.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

// Starts a unit. Returns what has to end: the durable step that sends the request, and the result.
function started(ctx, unit, read) {
  const { id, promise } = ctx.awakeable();
  const sent = ctx.run(unit, async () => {
    const response = await fetch(RECEIVER, {
      method: "POST",
      headers: { "content-type": "application/json", "ebb-callback-url": `${INGRESS}/restate/awakeables/${id}/resolve` },
      body: JSON.stringify({ unit, read }),
    });
    await response.arrayBuffer();
    if (response.status !== 202) throw new Error(`the receiver answered ${response.status}`);
  });
  return [promise, sent];
}

// Runs units at the same time and returns their results.
async function units(ctx, names, read) {
  const ended = await restate.RestatePromise.all(names.flatMap((name) => started(ctx, name, read)));
  return names.map((_, index) => ended[2 * index].outputs.id);
}

const names = (count) => Array.from({ length: count }, (_, index) => `u${index}`);

const runs = restate.service({
  name: "runs",
  handlers: {
    chain: async (ctx, count) => {
      let read = [];
      for (const name of names(count)) read = await units(ctx, [name], read);
    },
    fan: async (ctx, count) => {
      const read = await units(ctx, ["first"], []);
      await units(ctx, ["last"], await units(ctx, names(count), read));
    },
  },
});

const server = http2.createServer(restate.createEndpointHandler({ services: [runs] }));
server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
