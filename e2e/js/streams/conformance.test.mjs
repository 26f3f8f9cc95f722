// The published conformance tests of Durable Streams, against the server at STREAMS.

import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.STREAMS, subscriptions: true });
