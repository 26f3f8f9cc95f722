// Package consumer passes the messages of durable streams to objects, each message once.
//
// A [Subscription] names a subscription of a server of the Durable Streams protocol, and the objects that take the messages of its streams.
// The server wakes the subscription's worker, which is an object of the class that [Class] returns: by a webhook
// ([Subscription.Webhook]), or by a stream of wakes that the host follows ([Subscription.Pull]), if the server cannot reach the host. The
// server may be one of package streams or any other.
//
// # The order of a wake
//
//  1. The worker stores the wake as a row, in place of an older one. The response to the server leaves when the row is durable.
//  2. The row is work of the agent ([agent.OnRows]), so it survives the end of the incarnation and of the process. One drain runs at a time.
//     A wake that arrives during a drain replaces the row, and the next drain begins after this one.
//  3. The drain sends a request without cursors. If the server refuses it, the wake is stale, and nothing is read.
//  4. For each stream, the drain asks the stream's object for its position, reads the stream from there, and calls the object with the messages.
//     The effects of the call and the new position are one batch of the object.
//  5. When that batch is durable, the drain acknowledges the position to the server.
//  6. When each stream has reached the tail that the wake names, the drain ends the wake at the server, and then deletes the row.
//
// # Invariants
//
//   - A position is stored with the effects of all messages before it, and of no other. A batch of messages begins at the stored position, or is
//     refused: so it makes no difference how often a wake is delivered and how many drains run, as in a process that has lost its
//     lease without knowing it.
//   - The server's cursor is the beginning for an object without a position, and nothing else. It never passes the position of an object.
//   - While a drain runs, a heartbeat leaves each third of the lease, also during a long read or call. If the lease has ended, the server
//     wakes the worker again, with a higher generation, and refuses the requests of the old one: its drain ends without an error.
//   - An error of a stream or of its object fails the drain when it has worked on the other streams; an error of the server fails it immediately. The agent repeats it, with a growing
//     delay, until the server refuses the wake.
package consumer
