// Two published StreamDBs follow the rows of an object: node statedb.mjs OBJECT COUNT. One of them makes COUNT changes by methods of the
// object, and sees each of them in its own rows before the next one. At the end both have the same rows.

import { createStateSchema } from "@durable-streams/state";
import { createStreamDB } from "@durable-streams/state/db";
import { createFetchWithBackoff } from "@durable-streams/client";
import { randomUUID } from "node:crypto";
import { z } from "zod";

const [object, count] = [process.argv[2], Number(process.argv[3])];
const backoffOptions = { initialDelay: 20, maxDelay: 200, multiplier: 2, maxRetries: Infinity };
const state = createStateSchema({
  items: { type: "items", primaryKey: "id", schema: z.object({ id: z.string(), n: z.number(), txid: z.string() }) },
});
const open = () =>
  createStreamDB({
    streamOptions: { url: `${object}/http/`, contentType: "application/json", backoffOptions },
    live: "long-poll", // a connection of server-sent events that is cut ends a StreamDB
    state,
  });
const rows = (db) =>
  JSON.stringify(db.collections.items.toArray.map(({ id, n }) => [id, n]).sort(([a], [b]) => a.localeCompare(b)));
const retrying = createFetchWithBackoff(fetch, backoffOptions);

async function call(method, argument) {
  for (;;) {
    try {
      const response = await retrying(`${object}/${method}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(argument),
      });
      if (response.ok) return await response.json();
    } catch (e) {
      console.log(`again: ${e}`); // the server was killed: put and drop may be repeated
    }
  }
}

const [mine, other] = [open(), open()];
await Promise.all([mine.preload(), other.preload()]);
const want = new Map();
for (let n = 0; n < count; n++) {
  const id = `i${n % 7}`;
  const txid = randomUUID();
  if (n % 5 === 4) {
    await call("drop", id);
    want.delete(id);
  }
  const next = `i${(n + 3) % 7}`;
  await call("put", { id: next, n, txid });
  want.set(next, n);
  await mine.utils.awaitTxId(txid, 60_000);
  if (mine.collections.items.get(next)?.n !== n) throw new Error(`after change ${n}: ${rows(mine)}`);
  console.log(`changed ${n}`);
}
const expected = JSON.stringify([...want].sort(([a], [b]) => a.localeCompare(b)));
for (let rest = 300; rows(other) !== expected && rest > 0; rest--) await new Promise((r) => setTimeout(r, 100));
for (const [name, db] of Object.entries({ mine, other, late: open() })) {
  await db.preload();
  if (rows(db) !== expected) throw new Error(`${name}: ${rows(db)}, want ${expected}`);
  console.log(`read ${name}`);
  db.close();
}
