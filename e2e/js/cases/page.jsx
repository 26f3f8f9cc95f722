// Cases of a page: useAgent, and more than one tab.

import { createRoot } from "react-dom/client";
import { Board } from "../board.jsx";

// shows waits until an element has a text.
export function shows(element, text) {
  return new Promise((resolve) => {
    const look = () => {
      if (!element.textContent.includes(text)) return;
      observer.disconnect();
      resolve(text);
    };
    const observer = new MutationObserver(look);
    observer.observe(element, { subtree: true, childList: true, characterData: true });
    look();
  });
}

// board shows a Board while f runs.
async function board(props, f) {
  const place = document.createElement("div");
  document.querySelector("#boards").append(place);
  const root = createRoot(place);
  root.render(<Board {...props} />);
  try {
    await f(place, (text) => shows(place, text));
  } finally {
    root.unmount();
    place.remove();
  }
}

async function useAgent(t) {
  const other = await t.connected();
  let agent;
  const onAgent = (a) => { agent = a; };
  await board({ room: t.room, onAgent }, async (place, shown) => {
    const soon = (text) => t.soon(`${text}, which ${place.textContent}`, shown(text));
    await soon("untitled: 0");
    await soon(`chat-room/${t.room}`);
    await t.soon("ready", agent.ready);
    place.querySelector("#add").click();
    await soon("added, now 1");
    await soon("untitled: 1");
    place.querySelector("#rename").click();
    await t.until(other, 1, "state", "server", { title: "renamed", count: 1 });
    await t.call(other, "add", 4);
    await soon("renamed: 5");
    t.same("stub", await t.soon("stub", agent.stub.sum(1, 2)), 3);
    const gone = soon("not connected");
    await t.control("restart", t.room);
    await gone;
    await soon(`chat-room/${t.room}`);
    await t.until(other, 2, "identity");
    await t.call(other, "add", 1);
    await soon("renamed: 6");
    await t.control("picture", "use-agent");
  });
}

async function useAgentRefused(t) {
  await board({ room: t.room, query: { token: "wrong" } }, async (place, shown) => {
    await t.soon("the error", shown("closed 4001 who are you?"));
    place.querySelector("#add").click();
    await t.soon("the call's error", shown("Connection closed"));
  });
}

async function twoTabs(t) {
  const c = await t.connected();
  await t.control("tab", `?room=${t.room}`);
  const shown = (text) => t.control("shows", text);
  await shown("untitled: 0");
  await t.control("click", "#add");
  await t.until(c, 1, "state", "server", { title: "untitled", count: 1 });
  await shown("added, now 1");
  c.setState({ title: "from the other tab", count: 5 });
  await shown("from the other tab: 5");
  await t.control("picture", "second-tab");
  await t.control("close", "");
}

export default [
  { name: "useAgent", run: useAgent },
  { name: "useAgent refused", run: useAgentRefused },
  { name: "two tabs", run: twoTabs },
];
