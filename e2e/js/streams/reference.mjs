// The reference server of Durable Streams: node reference.mjs PORT DIRECTORY. It prints a line when it listens. Its streams are in files, and its
// subscriptions in memory.

import { DurableStreamTestServer } from "@durable-streams/server";

const server = new DurableStreamTestServer({ port: Number(process.argv[2]), host: "127.0.0.1", dataDir: process.argv[3], longPollTimeout: 3000, webhooks: true });
await server.start();
console.log(`listening on http://127.0.0.1:${process.argv[2]}`);
