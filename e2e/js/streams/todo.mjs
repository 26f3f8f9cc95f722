// A page with the rows of an object: a published StreamDB, a live query of TanStack DB over it, and changes that the page shows before the
// object has them. The object is the parameter of the URL.

import { createLiveQueryCollection, createOptimisticAction, gt } from "@tanstack/db";
import { call, open } from "./todoobject.mjs";

const object = new URLSearchParams(location.search).get("object");
const db = open(object);
const items = db.collections.items;
const large = createLiveQueryCollection((q) =>
  q.from({ item: items }).where(({ item }) => gt(item.n, 9)).orderBy(({ item }) => item.id),
);

const change = createOptimisticAction({
  onMutate: (row) => {
    if (items.has(row.id)) {
      items.update(row.id, (draft) => void Object.assign(draft, row));
    } else {
      items.insert(row);
    }
  },
  mutationFn: async (row) => {
    await call(object, "put", row);
    await db.utils.awaitTxId(row.txid, 60_000);
  },
});

/** put shows a row immediately. Its promise resolves when the row has come back from the object. */
window.put = (id, n) => change({ id, n, txid: crypto.randomUUID() }).isPersisted.promise;
window.drop = (id) => call(object, "drop", id);

const text = (list) => list.map(({ id, n }) => `${id}=${n}`).sort().join(" ");
function render() {
  document.querySelector("#all").textContent = text(items.toArray);
  document.querySelector("#large").textContent = text(large.toArray);
}
addEventListener("unhandledrejection", (e) => void (document.title = `${e.reason}`));
await db.preload();
await large.preload();
items.subscribeChanges(render);
large.subscribeChanges(render);
render();
document.title = "ready";
