const untitled = { title: "untitled", count: 0 };

async function connect(t) {
  const c = await t.connected();
  t.same("identity", [c.name, c.agent, c.identified], [t.room, "chat-room", true]);
  t.same("identities seen", c.saw("identity", t.room, "chat-room"), 1);
}

async function readyWithState(t) {
  const c = t.client();
  await t.soon("ready", c.ready);
  await t.until(c, 1, "state");
  await t.until(c, 1, "identity");
  t.same("state", c.state, untitled);
  const order = c.seen.map(([kind]) => kind).filter((kind) => kind === "identity" || kind === "state");
  t.same("order", order, t.generation === "0.21" ? ["identity", "state"] : ["state", "identity"]);
}

async function readyWithoutState(t) {
  const c = await t.connected({ agent: "Diary" });
  const other = await t.connected({ agent: "Diary" });
  t.same("state", [c.agent, c.state, c.saw("state")], ["diary", undefined, 0]);
  c.setState(["any", { json: null }]);
  await t.until(other, 1, "state", "server", ["any", { json: null }]);
}

async function stateFromServer(t) {
  const [caller, other] = [await t.connected(), await t.connected()];
  t.same("result", await t.call(caller, "add", 2), 2);
  const now = { title: "untitled", count: 2 };
  await t.until(caller, 1, "state", "server", now);
  await t.until(other, 1, "state", "server", now);
  t.same("state", [caller.state, other.state], [now, now]);
}

async function stateFromClient(t) {
  const [a, b] = [await t.connected(), await t.connected()];
  const mine = { title: "<déjà vu> & 漢字 🎈", count: 1, colour: { r: 1.5 } };
  a.setState(mine);
  await t.until(b, 1, "state", "server", mine);
  await t.call(a, "nothing"); // an echo would have come before its answer
  t.same("states seen by who set it", a.seen.filter(([kind]) => kind === "state"),
    [["state", "server", untitled], ["state", "client", mine]]);
  b.setState({ title: "b", count: 2 });
  await t.until(a, 1, "state", "server", { title: "b", count: 2 });
}

async function stateRefused(t) {
  const [a, b] = [await t.connected(), await t.connected()];
  a.setState({ title: "less", count: -1 });
  await t.until(a, 1, "state error", "State update rejected");
  a.setState("no board");
  await t.until(a, 2, "state error", "State update rejected");
  await t.call(b, "nothing");
  t.same("states seen by the other", [b.state, b.saw("state")], [untitled, 1]);
}

async function readonly(t) {
  const [writer, reader] = [await t.connected(), await t.connected({ query: { readonly: "1" } })];
  reader.setState({ title: "mine", count: 1 });
  await t.until(reader, 1, "state error", "Connection is readonly");
  await t.fails("add", t.call(reader, "add", 1), "Connection is readonly");
  t.same("what changes nothing", await t.call(reader, "sum", 1, 2), 3);
  await t.call(writer, "add", 5);
  await t.until(reader, 1, "state", "server", { title: "untitled", count: 5 });
  await t.call(writer, "lock", true);
  writer.setState({ title: "mine", count: 1 });
  await t.until(writer, 1, "state error", "Connection is readonly");
}

async function noProtocol(t) {
  const silent = t.client({ query: { silent: "1" } });
  await t.until(silent, 1, "open");
  const other = await t.connected();
  t.same("result", await t.call(silent, "add", 3), 3);
  await t.until(other, 1, "state", "server", { title: "untitled", count: 3 });
  other.setState({ title: "x", count: 4 });
  await t.call(other, "nothing");
  silent.send("hello");
  await t.until(silent, 1, "message", "heard hello");
  t.same("frames of the wire", silent.saw("state") + silent.saw("identity"), 0);
  t.same("identified", silent.identified, false);
}

async function large(t) {
  const [a, b] = [await t.connected(), await t.connected()];
  const state = { title: "x".repeat(1_500_000), count: 1 };
  a.setState(state);
  await t.until(b, 1, "state", "server", state);
  const text = "é".repeat(1_200_000);
  t.same("what was sent", (await t.call(a, "same", text)) === text, true);
}

export default [
  { name: "connect", run: connect },
  { name: "ready with a state", run: readyWithState },
  { name: "ready without a state", run: readyWithoutState },
  { name: "state from the server", run: stateFromServer },
  { name: "state from a client", run: stateFromClient },
  { name: "state refused", run: stateRefused },
  { name: "readonly", run: readonly },
  { name: "no protocol", run: noProtocol },
  { name: "large frames", run: large },
];
