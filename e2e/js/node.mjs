// The cases in Node.js: node node.mjs GENERATION HOST

import WebSocket from "ws";
import addresses from "./cases/addresses.mjs";
import calls from "./cases/calls.mjs";
import endings from "./cases/endings.mjs";
import state from "./cases/state.mjs";
import { runAll } from "./testcase.mjs";

const [generation, host] = process.argv.slice(2);
const { AgentClient, agentFetch } = await import(`agents-${generation}/client`);

// As in browsers, each frame is an event of its own.
class Socket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, { allowSynchronousEvents: false });
  }
}

const cases = [...state, ...calls, ...addresses, ...endings].filter(({ node = true }) => node);
await runAll(cases, { sdk: { AgentClient, agentFetch, WebSocket: Socket }, host, generation });
