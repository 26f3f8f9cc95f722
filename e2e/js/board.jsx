// A board that is shared by useAgent, as an application would have it.

import { useAgent } from "agents/react";
import { useState } from "react";

export function Board({ room, query, onAgent = () => {} }) {
  const [state, setState] = useState();
  const [said, setSaid] = useState("");
  const agent = useAgent({
    agent: "ChatRoom",
    name: room,
    query,
    minReconnectionDelay: 20,
    onStateUpdate: setState,
  });
  onAgent(agent);
  const add = () => agent.call("add", [1]).then((n) => setSaid(`added, now ${n}`), (e) => setSaid(e.message));
  const rename = () => agent.setState({ ...state, title: "renamed" });
  return (
    <section>
      <h2>{state ? `${state.title}: ${state.count}` : "no state yet"}</h2>
      <p>
        {agent.identified ? `${agent.agent}/${agent.name}` : "not connected"}
        {agent.connectionError ? `, closed ${agent.connectionError.code} ${agent.connectionError.reason}` : ""}
      </p>
      <button id="add" onClick={add}>add 1</button> <button id="rename" onClick={rename}>rename</button>
      <p id="said">{said}</p>
    </section>
  );
}
