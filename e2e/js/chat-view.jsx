// A conversation by useAgentChat, as an application would have it.

import { useAgentChat } from "@cloudflare/ai-chat/react";
import { useAgent, useAgentToolEvents } from "agents/react";
import { Suspense } from "react";

const text = (message) => message.parts.filter(({ type }) => type === "text").map((p) => p.text).join("");
const calls = (message) => message.parts.filter((p) => p.toolCallId).map((p) => `[${p.type} ${p.state}]`).join("");

function Conversation({ room, onChat, options }) {
  const agent = useAgent({ agent: "ChatAgent", name: room, minReconnectionDelay: 20, maxReconnectionDelay: 200 });
  const chat = useAgentChat({ agent, ...options });
  onChat(chat, agent, useAgentToolEvents({ agent }));
  return (
    <section>
      <p className="status">{chat.status}{chat.error ? `: ${chat.error.message}` : ""}</p>
      <ol>
        {chat.messages.map((m) => (
          <li key={m.id} id={m.id} className={m.role}>{text(m)}<i>{calls(m)}</i></li>
        ))}
      </ol>
    </section>
  );
}

export function Chat(props) {
  return <Suspense fallback="loading"><Conversation {...props} /></Suspense>;
}
