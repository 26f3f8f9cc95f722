// The object of the clients of rows: its schema, and calls of its methods.

import { createFetchWithBackoff } from "@durable-streams/client";
import { createStateSchema } from "@durable-streams/state";
import { createStreamDB } from "@durable-streams/state/db";
import { z } from "zod";

const backoffOptions = { initialDelay: 20, maxDelay: 200, multiplier: 2, maxRetries: Infinity };
const state = createStateSchema({
  items: { type: "items", primaryKey: "id", schema: z.object({ id: z.string(), n: z.number(), txid: z.string() }) },
});
const retrying = createFetchWithBackoff(fetch, backoffOptions);

/** open returns a StreamDB of the object's rows. */
export function open(object) {
  return createStreamDB({
    streamOptions: { url: `${object}/http/`, contentType: "application/json", backoffOptions },
    live: "long-poll", // a connection of server-sent events that is cut ends a StreamDB
    state,
  });
}

/** call calls a method that may be repeated, until the server answers. */
export async function call(object, method, argument) {
  for (;;) {
    try {
      const response = await retrying(`${object}/${method}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(argument),
      });
      if (response.ok) return await response.json();
    } catch (e) {
      console.log(`again: ${e}`); // the server was killed
    }
  }
}
