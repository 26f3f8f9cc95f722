// The published client of Durable Streams: node client.mjs URL COUNT. It creates a stream and appends COUNT messages by an idempotent
// producer, while readers in both live modes follow it. Each prints a line when it has all messages, once and in order.

import { DurableStream, IdempotentProducer, createFetchWithBackoff, stream } from "@durable-streams/client";

const [url, count] = [process.argv[2], Number(process.argv[3])];
const want = JSON.stringify(Array.from({ length: count }, (_, n) => ({ n })));
const backoffOptions = { initialDelay: 20, maxDelay: 200, multiplier: 2, maxRetries: Infinity };

async function follow(live) {
  const got = [];
  let offset = "-1";
  for (let closed = false; !closed; ) {
    let current = true; // closed may precede the last batch; one of an earlier session is read again
    try {
      const response = await stream({ url, offset, live, backoffOptions });
      const last = new Promise((resolve) => {
        response.subscribeJson(async (batch) => {
          if (!current) return;
          got.push(...batch.items);
          offset = batch.offset;
          if (batch.streamClosed) resolve();
        });
      });
      await response.closed;
      closed = response.streamClosed; // the session may also end with its connection
      if (closed) await Promise.race([last, new Promise((resolve) => setTimeout(resolve, 1000))]);
    } catch (e) {
      console.log(`cut ${live}: ${e}`); // the server was killed in the middle of a response
    }
    current = false;
  }
  check(live, got);
}

function check(mode, got) {
  if (JSON.stringify(got) !== want) throw new Error(`${mode}: ${JSON.stringify(got)}`);
  console.log(`read ${mode}`);
}

await DurableStream.create({ url, contentType: "application/json" });
const readers = [follow("long-poll"), follow("sse")];
const target = new DurableStream({ url, contentType: "application/json", backoffOptions });
const retrying = createFetchWithBackoff(fetch, backoffOptions);
const producer = new IdempotentProducer(target, "producer", { lingerMs: 0, maxInFlight: 1, fetch: retrying });
for (let n = 0; n < count; n++) {
  producer.append(JSON.stringify({ n }));
  await producer.flush();
  console.log(`appended ${n}`);
}
await producer.close();
await Promise.all(readers);
check("catch-up", await (await stream({ url, offset: "-1", live: false })).json());
