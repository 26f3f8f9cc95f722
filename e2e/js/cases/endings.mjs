// refused is a client that is refused for good.
async function refused(t, query, code, reason) {
  const c = t.client({ query });
  await gone(t, c, code, reason);
}

// gone is a client with a connection that was closed for good.
async function gone(t, c, code, reason) {
  await t.until(c, 1, "connection error", code, reason);
  t.same("closed", [c.saw("close", code, reason), c.saw("close")], [1, 1]);
  t.same("error", [c.connectionError.code, c.connectionError.reason], [code, reason]);
  t.same("retries", [c.retryCount, c.readyState], [0, c.CLOSED]); // a planned retry is counted by now
  await t.fails("a later call", t.call(c, "sum", 1, 2), "Connection closed");
}

const refusedByAuthorize = (t) => refused(t, { token: "wrong" }, 4001, "who are you?");
const refusedByOnConnect = (t) => refused(t, { banned: "1" }, 1008, "not you");

async function toldToGo(t) {
  const c = await t.connected();
  const calls = ["forever", "leave"].map((method) => t.fails(method, t.call(c, method), "Connection closed"));
  await Promise.all(calls);
  await gone(t, c, 4000, "goodbye");
}

async function failedOnConnect(t) {
  const c = t.client({ query: { fickle: "1" } });
  await t.until(c, 1, "close", 1011, "the agent refused the connection");
  t.same("told", c.saw("message", '{"error":"come again"}'), 1);
  await t.until(c, 2, "open");
  await t.until(c, 2, "identity");
  t.same("id", (await t.call(c, "arrival"))[0], c.id);
  t.same("error", c.connectionError, null);
}

async function sameId(t) {
  const older = await t.connected({ id: "me" });
  const newer = await t.connected({ id: "me" });
  await t.until(older, 1, "connection error", 4409, "replaced by a newer connection of the same id");
  t.same("arrival", (await t.call(newer, "arrival"))[0], "me");
}

async function killed(t) {
  const c = await t.connected({ id: "survivor" });
  c.setState({ title: "kept", count: 7 });
  t.same("the last answer", await t.call(c, "add", 1), 8);
  await t.call(c, "fresh");
  const lost = t.fails("the call under way", c.call("forever"), "Connection closed");
  await t.call(c, "nothing"); // by now the other call has begun
  await t.control("kill");
  await lost;
  await t.until(c, 1, "close", 1006);
  const waiting = c.call("add", [1]); // on the next connection
  await t.until(c, 2, "open");
  t.same("the waiting call", await t.soon("its answer", waiting), 9);
  await t.until(c, 1, "state", "server", { title: "kept", count: 8 }); // as it was before
  await t.until(c, 1, "state", "server", { title: "kept", count: 9 });
  t.same("id", (await t.call(c, "arrival"))[0], "survivor");
  t.same("fresh", await t.call(c, "fresh"), true);
}

async function asleep(t) {
  const [a, b] = [await t.connected(), await t.connected({ query: { readonly: "1" } })];
  t.same("fresh", await t.call(a, "fresh"), true);
  await t.control("asleep", t.room);
  t.same("fresh", await t.call(a, "fresh"), true); // a new incarnation
  await t.control("asleep", t.room);
  a.setState({ title: "awake", count: 1 });
  await t.until(b, 1, "state", "server", { title: "awake", count: 1 });
  await t.fails("add", t.call(b, "add", 1), "Connection is readonly"); // its rights have stayed too
  t.same("closings", a.saw("close") + b.saw("close"), 0);
}

async function restarted(t) {
  const [a, b] = [await t.connected({ id: "a" }), await t.connected({ id: "b" })];
  await t.call(a, "add", 3);
  await t.until(b, 1, "state", "server", { title: "untitled", count: 3 });
  await t.control("restart", t.room);
  for (const c of [a, b]) {
    await t.until(c, 1, "close", 1012);
    await t.until(c, 2, "identity");
    await t.until(c, 2, "state", "server", { title: "untitled", count: 3 });
    t.same("id", (await t.call(c, "arrival"))[0], c.id);
  }
}

export default [
  { name: "closed by Authorize", run: refusedByAuthorize },
  { name: "closed by OnConnect", run: refusedByOnConnect },
  { name: "closed by a method", run: toldToGo },
  { name: "failed OnConnect", run: failedOnConnect },
  { name: "two of one id", run: sameId },
  { name: "asleep", run: asleep },
  { name: "restarted", run: restarted },
  { name: "killed", run: killed },
];
