import { DurableObject } from "cloudflare:workers";

// Subject is the measured object, as in object.go: a counter and a list, on SQLite. No answer leaves before its writes
// are synced: that is the default of the output gate.
export class Subject extends DurableObject {
  calls = 0; // of this incarnation

  // add counts, and returns the sum.
  add(delta) {
    const n = this.get() + delta;
    this.ctx.storage.kv.put("n", n);
    return n;
  }

  get() {
    return this.ctx.storage.kv.get("n") ?? 0;
  }

  // fill makes the counter, and a number of rows.
  fill(rows) {
    for (let i = 1; i <= rows; i++) {
      this.ctx.storage.kv.put(`row/${String(i).padStart(12, "0")}`, 1);
    }
    return this.add(0);
  }

  // first returns the number of rows, if it is the first call of an incarnation.
  first() {
    if (++this.calls > 1) {
      return 0;
    }
    return [...this.ctx.storage.kv.list({ prefix: "row/" })].length;
  }

  // end ends the incarnation.
  end() {
    this.ctx.abort("ended by the benchmark");
  }

  async fetch(request) {
    if (request.method === "POST") {
      return Response.json(this.add(await request.json()));
    }
    return Response.json(this.first());
  }
}

const stub = (env, i) => env.SUBJECT.getByName("o" + String(i).padStart(7, "0"));

// each calls fn for n objects, up to 64 concurrently, and adds up the results.
async function each(objects, fn) {
  let next = 0;
  let sum = 0;
  await Promise.all(Array.from({ length: 64 }, async () => {
    while (next < objects) {
      const n = await fn(next++);
      sum += n; // one statement: sum += await ... would lose concurrent additions
    }
  }));
  return sum;
}

// drive adds one to the objects in turn, by calls within the runtime, with a fixed number of concurrent calls until
// the time is over, and returns the number of answered calls.
async function drive(env, objects, outstanding, ms) {
  const stubs = Array.from({ length: objects }, (_, i) => stub(env, i));
  const until = Date.now() + ms;
  let next = 0;
  let done = 0;
  await Promise.all(Array.from({ length: outstanding }, async () => {
    while (Date.now() < until) {
      await stubs[next++ % objects].add(1);
      done++;
    }
  }));
  return done;
}

// work has the functions of the benchmark, in addition to calls of objects.
const work = {
  drive: (env, q) => drive(env, q.objects, q.outstanding, q.ms),
  fill: (env, q) => each(q.objects, (i) => stub(env, i).fill(q.rows)),
  sum: (env, q) => each(q.objects, (i) => stub(env, i).get()),
  end: (env, q) => stub(env, q.object).end().then(() => 0, () => 1),
};

export default {
  // fetch serves /objects/subject/{name}/... as dohost does, and POST /bench/{work}.
  async fetch(request, env) {
    const [, kind, what, name] = new URL(request.url).pathname.split("/");
    if (kind === "objects") {
      return env.SUBJECT.getByName(name).fetch(request);
    }
    return Response.json(await work[what](env, await request.json()));
  },
};
