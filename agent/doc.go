// Package agent is durable agents: objects with a state that clients share, methods that
// clients call over a WebSocket, and work that survives the end of an incarnation. It speaks
// the wire of the Agents SDK, so that front-ends written for that work unmodified.
//
// An agent is an object whose struct embeds an [Agent]:
//
//	const Rooms dohost.Namespace[Room] = "room"
//
//	type Room struct {
//		*agent.Agent[Board]
//	}
//
//	func Class() dohost.Class {
//		return agent.Bind(Rooms,
//			func(_ context.Context, a *agent.Agent[Board]) (*Room, error) { return &Room{a}, nil },
//			agent.Initial[Room](Board{Title: "untitled"}),
//			agent.Callable("rename", (*Room).Rename))
//	}
//
// What may enter it is listed in [Bind], as it is for any object. Everything that is true of
// an object is true of an agent: one event at a time, nothing leaves before it is durable,
// a life that has ended can do nothing.
//
// # State
//
// An agent's state is one JSON value. It is kept as it came, with members that the Go type
// does not know, and replaced as a whole. A change is written, shown to every client but the
// one that made it, and told to [OnStateChanged], in this order: clients see it once it is
// durable, and the hook runs as an event of its own.
//
// # Connections
//
// A connection is a WebSocket that hibernates ([dohost.Socket]). It has the id that its client
// chose, which is its first tag, and its own small state. What is not a frame of the wire goes
// to [OnMessage] as it came.
package agent
