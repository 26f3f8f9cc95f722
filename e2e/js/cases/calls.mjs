async function results(t) {
  const c = await t.connected();
  const odd = { a: [1.5, null, true], "<&>": "déjà\u2028\u0000🎈", deep: { er: [] } };
  t.same("sum", await t.call(c, "sum", 1, 2, 3), 6);
  t.same("join", await t.call(c, "join", "Ada", "Lovelace"), "Ada Lovelace");
  t.same("join of an object", await t.call(c, "join", { first: "Ada", last: "L" }), "Ada L");
  t.same("same", await t.call(c, "same", odd), odd);
  t.same("null", await t.call(c, "null"), null);
  t.same("nothing", await t.call(c, "nothing"), undefined);
  t.same("by the stub", await t.soon("the stub", c.stub.sum(4, 5)), 9);
}

async function errors(t) {
  const c = await t.connected();
  await t.fails("fail", t.call(c, "fail"), "the paint is wet");
  await t.fails("fly", t.call(c, "fly"), "Method fly does not exist");
  await t.fails("Hidden", t.call(c, "Hidden"), "Method Hidden is not callable");
  await t.fails("join", t.call(c, "join", 1, 2, 3), "argument of join: argument 1: json: cannot unmarshal number into Go value of type string");
  t.same("sum", await t.call(c, "sum", 1, 2), 3); // the connection still works
}

async function beforeOpen(t) {
  const c = t.client();
  t.same("open", c.readyState === c.OPEN, false);
  const calls = [c.call("sum", [1, 2]), c.call("sum", [3, 4])];
  t.same("results", await t.soon("the answers", Promise.all(calls)), [3, 7]);
}

async function stream(t) {
  const c = await t.connected();
  for (const nested of [false, true]) {
    const got = [];
    const callbacks = {
      onChunk: (chunk) => got.push(chunk),
      onDone: (value) => got.push(`done: ${value}`),
      onError: (error) => got.push(`error: ${error}`),
    };
    const options = nested ? { stream: callbacks } : callbacks;
    t.same("value", await t.soon("the stream", c.call("stream", [2, 0], options)), "done");
    await t.fails("stream", t.soon("the stream", c.call("stream", [3, 0], options)), "3 is too far");
    t.same("chunks", got, ["0", "1", "done: done", "0", "1", "2", "error: 3 is too far"]);
  }
}

async function largeStream(t) {
  const c = await t.connected();
  const sizes = [];
  const done = c.call("stream", [2, 500_000], { onChunk: (chunk) => sizes.push(chunk.length) });
  t.same("value", await t.soon("the stream", done), "done");
  t.same("chunks", sizes, [500_001, 500_001]);
}

async function messages(t) {
  const c = await t.connected();
  c.send("text");
  await t.until(c, 1, "message", "heard text");
  c.send('{"type":"chat","id":7}');
  await t.until(c, 1, "message", 'heard {"type":"chat","id":7}');
  c.send(new Uint8Array([0, 1, 255]));
  await t.until(c, 1, "binary", [...new TextEncoder().encode("heard "), 0, 1, 255]);
}

async function oversize(t) {
  const c = await t.connected();
  c.send("x".repeat((4 << 20) + 1));
  await t.until(c, 1, "close", 1009);
  await t.until(c, 2, "open"); // it reconnects
  await t.until(c, 2, "identity");
  t.same("sum", await t.call(c, "sum", 1, 2), 3);
}

export default [
  { name: "results", run: results },
  { name: "errors", run: errors },
  { name: "calls before open", run: beforeOpen },
  { name: "stream", run: stream },
  { name: "large stream", run: largeStream },
  { name: "messages", run: messages },
  { name: "oversize frame", run: oversize },
];
