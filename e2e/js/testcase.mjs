// A trial is one case while it runs: it makes the clients, records their events, waits for the case, and closes them.

const patience = 10_000;

export class Trial {
  constructor({ sdk, host, generation }, room) {
    Object.assign(this, { sdk, host, generation, room, clients: [], waiting: new Set() });
  }

  // client connects. Its member seen has its events, in order.
  client(options = {}) {
    const seen = [];
    const note = (...what) => {
      seen.push(what);
      for (const look of this.waiting) look();
    };
    const client = new this.sdk.AgentClient({
      agent: "ChatRoom",
      name: this.room,
      host: this.host,
      WebSocket: this.sdk.WebSocket,
      minReconnectionDelay: 20, // its default is 3 s
      onIdentity: (name, agent) => note("identity", name, agent),
      onIdentityChange: (...names) => note("identity change", ...names),
      onStateUpdate: (state, from) => note("state", from, state),
      onStateUpdateError: (error) => note("state error", error),
      onConnectionError: (error) => note("connection error", error.code, error.reason),
      ...options,
    });
    client.addEventListener("open", () => note("open"));
    client.addEventListener("close", (event) => note("close", event.code, event.reason));
    client.addEventListener("message", ({ data }) => {
      if (typeof data === "string") note("message", data);
      else Promise.resolve(data.arrayBuffer?.() ?? data).then((b) => note("binary", [...new Uint8Array(b)]));
    });
    client.seen = seen;
    client.saw = (...what) => seen.filter((s) => what.every((w, i) => same(s[i], w))).length;
    this.clients.push(client);
    return client;
  }

  // connected is a client that is ready.
  async connected(options) {
    const client = this.client(options);
    await this.soon("ready", client.ready);
    await this.until(client, 1, "identity");
    return client;
  }

  // until waits for the n-th occurrence of an event at the client.
  until(client, n, ...what) {
    return this.soon(`${n} × ${show(what)}`, new Promise((resolve) => {
      const look = () => {
        if (client.saw(...what) < n) return;
        this.waiting.delete(look);
        resolve();
      };
      this.waiting.add(look);
      look();
    }));
  }

  // soon makes a promise fail that takes too long.
  soon(what, promise) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => {
        const seen = this.clients.map((c, i) => `\n  client ${i} saw ${short(show(c.seen))}`);
        reject(new Error(`waited in vain for ${what}${seen.join("")}`));
      }, patience);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  call(client, method, ...args) {
    return this.soon(`the answer of ${method}`, client.call(method, args));
  }

  async fails(what, promise, message) {
    const error = await this.soon(what, promise.then(
      (value) => { throw new Error(`${what}: got ${show(value)}, want an error`); },
      (error) => error,
    ));
    this.same(what, error.message, message);
  }

  same(what, got, want) {
    if (!same(got, want)) throw new Error(`${what}: got ${short(show(got))}, want ${short(show(want))}`);
  }

  // control asks the test for an action that no client can do, for example to kill the server.
  control(verb, arg = "") {
    return control(this.host, verb, arg);
  }

  end() {
    for (const client of this.clients) client.close();
  }
}

export async function control(host, verb, body) {
  const answer = await fetch(`http://${host}/control/${verb}`, { method: "POST", body });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${verb}: ${text}`);
  return text;
}

// runAll runs the cases one after the other, and reports each to the test.
export async function runAll(cases, site, progress = () => {}) {
  for (const { name, run } of cases) {
    await control(site.host, "begin", name);
    const trial = new Trial(site, name.replaceAll(" ", "-"));
    let problem = "";
    try {
      await run(trial);
    } catch (error) {
      problem = error.stack.includes(error.message) ? error.stack : `${error.message}\n${error.stack}`;
    }
    trial.end();
    problem += await control(site.host, "end", problem);
    progress(name, problem);
  }
  await control(site.host, "done", "");
}

const same = (a, b) => a === b || (typeof a === typeof b && show(a) === show(b));
const show = (v) => JSON.stringify(v, (_, x) => (x === undefined ? "(undefined)" : x)) ?? "(undefined)";
const short = (text) => (text.length > 2000 ? `${text.slice(0, 2000)}… (${text.length} characters)` : text);
