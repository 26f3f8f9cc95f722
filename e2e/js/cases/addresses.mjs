async function basePath(t) {
  const c = await t.connected({ basePath: "user", query: { who: "anna" } });
  t.same("identity", [c.name, c.agent], ["anna", "chat-room"]);
  const deeper = await t.connected({ basePath: "user", path: "a/b", query: { who: "anna" } });
  t.same("arrival", await t.call(deeper, "arrival"), [deeper.id, `/a/b?_pk=${deeper.id}&who=anna`]);
  await t.call(deeper, "add", 1);
  await t.until(c, 1, "state", "server", { title: "untitled", count: 1 });
}

// The server sends the user to another agent after a reconnect.
async function identityChange(t) {
  const users = ["anton", "berta"];
  const c = await t.connected({ basePath: "user", query: async () => ({ who: users.shift() }) });
  await t.control("restart", "anton");
  await t.until(c, 1, "identity change", "anton", "berta", "chat-room", "chat-room");
  t.same("name", c.name, "berta");
}

async function queryAndPath(t) {
  const query = { who: "Ada Lovelace", none: null, n: 5 };
  const c = await t.connected({ path: "a/b c", query });
  t.same("arrival", await t.call(c, "arrival"), [c.id, `/a/b%20c?_pk=${c.id}&who=Ada+Lovelace&n=5`]);
  const later = await t.connected({ query: async () => ({ token: "right" }) });
  t.same("arrival", await t.call(later, "arrival"), [later.id, `/?_pk=${later.id}&token=right`]);
}

async function names(t) {
  const name = "Ada Lövelace & co";
  const [a, b] = [await t.connected({ name }), await t.connected({ name })];
  t.same("name", a.name, "Ada%20L%C3%B6velace%20&%20co"); // as in the URL
  a.setState({ title: "hers", count: 1 });
  await t.until(b, 1, "state", "server", { title: "hers", count: 1 });
  const encoded = await t.connected({ name: encodeURIComponent("a/b?c#d") });
  t.same("name", encoded.name, "a%2Fb%3Fc%23d");
}

async function agentFetch(t) {
  const { host } = t;
  const ask = async (options, init) => {
    const answer = await t.soon("fetch", t.sdk.agentFetch({ agent: "ChatRoom", host, ...options }, init));
    return `${answer.status} ${await answer.text()}`;
  };
  t.same("GET", await ask({ name: "r", path: "x/y", query: { q: "1 2" } }), "200 GET r/x/y?q=1+2 ");
  t.same("POST", await ask({ name: "r" }, { method: "POST", body: "hello" }), "200 POST r/? hello");
  // A basePath with a slash in front asks for a path with two.
  t.same("basePath", await ask({ basePath: "/agents/chat-room/r" }, { method: "POST", body: "b" }), "200 POST r/? b");
  t.same("no such agent", await ask({ agent: "Nobody", name: "r" }), "400 Invalid request\n");
}

// The page is from 127.0.0.1, so that localhost is another origin.
async function otherOrigin(t) {
  const host = t.host.replace("127.0.0.1", "localhost");
  const ask = (method) => {
    const headers = { "Content-Type": "application/json" };
    const answer = t.sdk.agentFetch({ agent: "ChatRoom", name: "r", host }, { method, headers, body: "{}" });
    return t.soon("fetch", answer.then((a) => a.text(), (error) => error.name));
  };
  t.same("PUT, which CORS does not allow", await ask("PUT"), "TypeError");
  t.same("POST", await ask("POST"), "POST r/? {}");
  const c = t.client({ host, maxRetries: 0 });
  await t.until(c, 1, "close");
  t.same("opened", c.saw("open"), 0);
}

export default [
  { name: "base path", run: basePath },
  { name: "identity change", run: identityChange },
  { name: "query and path", run: queryAndPath },
  { name: "names", run: names },
  { name: "agentFetch", run: agentFetch },
  { name: "page of another origin", node: false, run: otherOrigin },
];
