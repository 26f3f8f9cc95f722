// Cases of a conversation: useAgentChat, as it is on the page.

import { createRoot } from "react-dom/client";
import { Chat } from "../chat-view.jsx";

// View is a conversation on the page. It records everything that was visible.
class View {
  constructor(t, options = {}) {
    this.t = t;
    this.place = document.createElement("div");
    document.querySelector("#boards").append(this.place);
    this.seen = new Map(); // the texts of each answer, as they were painted
    this.statuses = []; // of each render: the browser may paint none of a short one
    this.ended = 0; // answers whose end the server has reported
    this.most = 0; // maximum of concurrent answers
    this.cuts = 0; // connections that were cut in the middle of an answer
    const frame = () => { // the painted content
      this.look();
      this.frame = requestAnimationFrame(frame);
    };
    frame();
    this.root = createRoot(this.place);
    this.root.render(<Chat room={t.room} options={options} onChat={(...all) => this.rendered(...all)} />);
  }

  rendered(chat, agent, tools) {
    this.chat = chat;
    this.tools = tools;
    if (this.statuses.at(-1) !== chat.status) this.statuses.push(chat.status);
    if (this.agent === agent) return;
    this.agent = agent;
    agent.addEventListener("message", ({ data }) => {
      const f = JSON.parse(data);
      if (f.type === "cf_agent_use_chat_response" && f.done) this.ended++;
    });
  }

  answers() {
    return [...this.place.querySelectorAll("li.assistant")];
  }

  text(li) {
    return li.firstChild?.nodeType === Node.TEXT_NODE ? li.firstChild.textContent : "";
  }

  look() {
    const answers = this.answers();
    this.most = Math.max(this.most, answers.length);
    for (const li of answers) {
      const texts = this.seen.get(li.id) ?? [];
      if (texts.at(-1) !== this.text(li)) texts.push(this.text(li));
      this.seen.set(li.id, texts);
    }
  }

  // until waits for a condition of the page.
  async until(what, holds) {
    const end = Date.now() + 10_000;
    while (!holds()) {
      if (Date.now() > end) throw new Error(`waited in vain for ${what}: ${this.place.innerHTML} ${JSON.stringify([...this.seen])} ${this.statuses}`);
      await new Promise((r) => setTimeout(r, 5));
    }
  }

  ready() {
    return this.until("the page", () => this.place.querySelector(".status")?.textContent === "ready");
  }

  // stored is the text of the first answer at the server.
  async stored() {
    const list = await (await fetch(`/agents/chat-agent/${this.t.room}/get-messages`)).json();
    return list[1].parts.filter((p) => p.type === "text").map((p) => p.text).join("");
  }

  words() {
    const last = this.answers().at(-1);
    return last ? this.text(last).split(" ").filter(Boolean).length : 0;
  }

  // counted waits for the end of a count, and reports errors in its painted texts: it counts to n, without a gap, and
  // the text never shrinks. A hook that resumes begins the message again, and the browser may paint that between two
  // frames: once for each cut the message may be empty. There are never more answers than most.
  async counted(n, answers = 1, most = answers) {
    await this.until(`${n} words`, () => this.words() >= n);
    await this.ready();
    for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame); // frames after the end
    const all = this.answers();
    this.t.same("answers", [all.length, this.most <= most || this.most], [answers, true]);
    const words = this.text(all.at(-1)).split(" ").filter(Boolean);
    this.t.same("the words", words.map((w) => w.split(".")[1]), [...Array(n).keys()].map(String));
    for (const [id, texts] of this.seen) {
      let said = "", anew = 0;
      for (const text of texts) {
        if (text === "" && said !== "" && anew < this.cuts) {
          anew++;
          continue;
        }
        if (!text.startsWith(said)) throw new Error(`${id} said ${JSON.stringify(said)}, and then ${JSON.stringify(text)}`);
        said = text;
      }
    }
  }

  send(text) {
    return this.chat.sendMessage({ text });
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.root.unmount();
    this.place.remove();
  }
}

// on opens views of one conversation while f runs.
async function on(t, n, f, options) {
  const views = Array.from({ length: n }, () => new View(t, options));
  try {
    for (const v of views) await v.ready();
    await f(...views);
  } finally {
    for (const v of views) v.close();
  }
}

const send = (t) => on(t, 1, async (v) => {
  v.send("count 10");
  await v.counted(10);
  v.t.same("statuses", v.statuses.slice(-2), ["streaming", "ready"]);
  v.send("count 3");
  await v.until("another", () => v.answers().length === 2);
  await v.counted(3, 2);
  await t.control("picture", "chat");
});

const stop = (t) => on(t, 1, async (v) => {
  v.send("count 200");
  await v.until("some words", () => v.words() > 5);
  await v.chat.stop();
  await v.until("the end", () => v.ended === 1);
  await v.ready();
  const stored = await v.stored();
  t.same("is cut", stored.split(" ").filter(Boolean).length < 200, true);
  v.send("count 2");
  await v.until("another", () => v.answers().length === 2);
  await v.counted(2, 2);
  // The SDK drops the words that arrive after its stop, and the next question sends its own text of the answer.
  const said = v.text(v.answers()[0]);
  t.same("the stopped answer", [await v.stored(), stored.startsWith(said), said.split(" ").length > 5], [said, true, true]);
});

const twoViews = (t) => on(t, 2, async (a, b) => {
  a.send("count 20");
  await Promise.all([a.counted(20), b.counted(20)]);
  t.same("ids", a.answers()[0].id, b.answers()[0].id);
});

const reload = (t) => on(t, 1, async (v) => {
  v.send("count 60");
  await v.until("some words", () => v.words() > 5);
  v.close();
  const again = new View(t);
  try {
    await again.counted(60);
  } finally {
    again.close();
  }
});

const cutOff = (verb, arg) => (t) => on(t, 2, async (a, b) => {
  a.send("count 60");
  await a.until("some words", () => a.words() > 8);
  for (const v of [a, b]) v.cuts = 1;
  await t.control(verb, arg && `ChatAgent/${t.room}`);
  await Promise.all([a.counted(60), b.counted(60)]);
});

const clientTool = (t) => on(t, 2, async (a, b) => {
  a.send("ask 5");
  await a.until("the question", () => a.place.textContent.includes("[tool-ask input-available]"));
  const part = a.chat.messages.at(-1).parts.find((p) => p.toolCallId);
  a.chat.addToolOutput({ toolCallId: part.toolCallId, tool: "ask", output: "yes" });
  await Promise.all([a.counted(5, 1, 2), b.counted(5)]); // the SDK opens another message until the end
  await b.until("the outcome", () => b.place.textContent.includes("[tool-ask output-available]"));
});

const approval = (t) => on(t, 1, async (v) => {
  v.send("stamp 5");
  await v.until("the question", () => v.place.textContent.includes("[tool-stamp approval-requested]"));
  const part = v.chat.messages.at(-1).parts.find((p) => p.toolCallId);
  v.chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
  await v.counted(5, 1, 2); // the SDK opens another message until the end, if the rest arrives before its request
  await v.until("the outcome", () => v.place.textContent.includes("[tool-stamp output-available]"));
});

// delegate has an agent that asks another one. The hook has its progress under the call, with each word once: on a page that sees all
// of it, through a kill of the server, and on a page that opens at the end.
const delegate = (kills) => (t) => on(t, 1, async (a) => {
  const run = (v) => {
    const call = v.chat.messages.at(-1)?.parts.find((p) => p.toolCallId);
    const runs = call ? v.tools.getRunsForToolCall(call.toolCallId) : [];
    t.same("runs", [runs.length <= 1, v.tools.unboundRuns.length], [true, 0]);
    return runs[0];
  };
  const words = (v) => (run(v)?.parts ?? []).filter((p) => p.type === "text").flatMap((p) => p.text.split(" ").filter(Boolean));
  const finished = async (v) => {
    await v.until("the end of the run", () => run(v)?.status === "completed");
    t.same("the words", words(v).map((w) => w.split(".")[1]), [...Array(40).keys()].map(String));
    t.same("the summary", run(v).summary.split(" ").filter(Boolean), words(v));
    t.same("the agent", run(v).agentType, "ChatAgent");
  };
  a.send("delegate 40");
  await a.until("words of the other agent", () => words(a).length > 5);
  t.same("the run", run(a).status, "running");
  if (kills) {
    a.cuts = 1;
    await t.control("kill", "");
  }
  await finished(a);
  await a.counted(40, 1, 2);
  const b = new View(t);
  try {
    await b.ready();
    await finished(b);
  } finally {
    b.close();
  }
});

const clear = (t) => on(t, 2, async (a, b) => {
  a.send("count 3");
  await Promise.all([a.counted(3), b.counted(3)]);
  a.chat.clearHistory();
  await Promise.all([a, b].map((v) => v.until("nothing", () => v.place.querySelectorAll("li").length === 0)));
});

const regenerate = (t) => on(t, 1, async (v) => {
  v.send("count 3");
  await v.counted(3);
  const first = v.answers()[0].id;
  v.chat.regenerate();
  await v.until("another", () => v.answers()[0] && v.answers()[0].id !== first);
  await v.counted(3);
});

const fails = (t) => on(t, 1, async (v) => {
  v.send("fail 8");
  await v.until("the error", () => v.place.textContent.includes("error: the model is out"));
  t.same("words", v.words(), 4);
  v.send("count 2");
  await v.until("another", () => v.answers().length === 2);
  await v.counted(2, 2);
});

export default [
  { name: "send", run: send },
  { name: "stop", run: stop },
  { name: "two views", run: twoViews },
  { name: "reload in mid-stream", run: reload },
  { name: "evicted in mid-stream", run: cutOff("restart", true) },
  { name: "killed in mid-stream", run: cutOff("kill", "") },
  { name: "tool of the client", run: clientTool },
  { name: "approval", run: approval },
  { name: "agent tool", run: delegate(false) },
  { name: "agent tool, killed in mid-stream", run: delegate(true) },
  { name: "clear", run: clear },
  { name: "regenerate", run: regenerate },
  { name: "the model fails", run: fails },
];
