// The published conformance tests of Durable Streams, against the server at STREAMS. A request to KILL restarts it before each test.

import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { beforeEach } from "vitest";

if (process.env.KILL) {
  beforeEach(async () => {
    const response = await fetch(process.env.KILL);
    await response.arrayBuffer();
  });
}

runConformanceTests({ baseUrl: process.env.STREAMS, subscriptions: true });
