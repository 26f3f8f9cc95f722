// The page. With ?room= it is a board, else it runs the cases and lists them.

import { AgentClient, agentFetch } from "agents/client";
import { createRoot } from "react-dom/client";
import { Board } from "./board.jsx";
import addresses from "./cases/addresses.mjs";
import calls from "./cases/calls.mjs";
import endings from "./cases/endings.mjs";
import page, { shows } from "./cases/page.jsx";
import state from "./cases/state.mjs";
import { runAll } from "./testcase.mjs";

const query = new URLSearchParams(location.search);

if (query.has("room")) {
  document.querySelector("h1").textContent = `The room ${query.get("room")}`;
  createRoot(document.querySelector("#boards")).render(<Board room={query.get("room")} />);
  window.shows = (text) => shows(document.body, text);
} else {
  const generation = query.get("generation");
  document.querySelector("h1").textContent = `agents ${generation} in a browser`;
  const list = document.querySelector("#cases");
  const progress = (name, problem) => {
    const item = document.createElement("li");
    item.textContent = problem ? `${name}: ${problem}` : name;
    item.className = problem ? "failed" : "passed";
    list.append(item);
  };
  const site = { sdk: { AgentClient, agentFetch }, host: location.host, generation };
  runAll([...state, ...calls, ...addresses, ...endings, ...page], site, progress);
}
