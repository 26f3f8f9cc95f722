// The page of conversations: it runs their cases and lists them.

import { AgentClient } from "agents/client";
import chat from "./cases/chat.jsx";
import { runAll } from "./testcase.mjs";

const generation = new URLSearchParams(location.search).get("generation");
document.querySelector("h1").textContent = `useAgentChat of agents ${generation}`;
const list = document.querySelector("#cases");
runAll(chat, { sdk: { AgentClient }, host: location.host, generation }, (name, problem) => {
  const item = document.createElement("li");
  item.textContent = problem ? `${name}: ${problem}` : name;
  item.className = problem ? "failed" : "passed";
  list.append(item);
});
