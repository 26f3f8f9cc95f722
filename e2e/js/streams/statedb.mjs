// Two published StreamDBs follow the rows of an object: node statedb.mjs OBJECT COUNT. One of them makes COUNT changes by methods of the
// object, and sees each of them in its own rows before the next one. At the end both have the same rows.

import { randomUUID } from "node:crypto";
import { call, open } from "./todoobject.mjs";

const [object, count] = [process.argv[2], Number(process.argv[3])];
const rows = (db) =>
  JSON.stringify(db.collections.items.toArray.map(({ id, n }) => [id, n]).sort(([a], [b]) => a.localeCompare(b)));

const [mine, other] = [open(object), open(object)];
await Promise.all([mine.preload(), other.preload()]);
const want = new Map();
for (let n = 0; n < count; n++) {
  const id = `i${n % 7}`;
  const txid = randomUUID();
  if (n % 5 === 4) {
    await call(object, "drop", id);
    want.delete(id);
  }
  const next = `i${(n + 3) % 7}`;
  await call(object, "put", { id: next, n, txid });
  want.set(next, n);
  await mine.utils.awaitTxId(txid, 60_000);
  if (mine.collections.items.get(next)?.n !== n) throw new Error(`after change ${n}: ${rows(mine)}`);
  console.log(`changed ${n}`);
}
const expected = JSON.stringify([...want].sort(([a], [b]) => a.localeCompare(b)));
for (let rest = 300; rows(other) !== expected && rest > 0; rest--) await new Promise((r) => setTimeout(r, 100));
for (const [name, db] of Object.entries({ mine, other, late: open(object) })) {
  await db.preload();
  if (rows(db) !== expected) throw new Error(`${name}: ${rows(db)}, want ${expected}`);
  console.log(`read ${name}`);
  db.close();
}
