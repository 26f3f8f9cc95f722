// The published conformance tests of Durable Streams, against the server at STREAMS. A request to BEFORE, with the name of the test, precedes each test.

import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { beforeEach } from "vitest";

if (process.env.BEFORE) {
  beforeEach(async ({ task }) => {
    const response = await fetch(`${process.env.BEFORE}?test=${encodeURIComponent(task.name)}`);
    await response.arrayBuffer();
  });
}

runConformanceTests({ baseUrl: process.env.STREAMS, subscriptions: true });
