// Package randchat draws programs for a chat agent at random, runs them, and compares each step with a model.
//
// A program is a list of instructions ([Instr]). Clients execute some of them over the wire protocol; the others are direct
// calls of the agent. A request has a [Plan]: the words of its reply, and an act of the handler before each of them. A word
// names its request and its number, so each text shows its origin.
//
// The model has two parts, and shares no code with package chat. The first is a value in the agent's own storage. The
// handler and the hooks change that value and the conversation in one batch, so the two must agree whenever the handler
// or a hook is called. The second is the [Observer], outside of the agent: it has the requests that were sent, and
// everything that clients have received, which is durable. Together they check:
//
//   - a request that is known to be stored is answered once, after those that were stored before it was sent, or skipped
//     as the policy documents
//   - a request that was cancelled does not begin, and a stopped reply gets no more chunks
//   - the handler continues exactly from its last word, also in a later incarnation, and not after the end of its reply
//   - the reply ends as the handler has ended it, or fails after as many attempts as Recovery allows
//   - OnRecovery gets the chunks and the checkpoint that the model has recorded, and its decision is the next step of the
//     reply
//   - OnResponse is called with that end, and its writes are committed once for each request
//   - the handler gets the list that the client sent, if the request is for another reply or has an edited message
//   - at rest, the conversation has each message that was stored, in order, and after it all words of its reply, each once,
//     unless a later request or a clearing may have deleted it
//   - at rest no request is open, and no chunk is left
//   - a client gets the chunks of a reply with numbers from 0, without a gap or a repetition, and the end of the reply once
//   - the text of a message on a client's page only grows
//   - a tool of the server runs at most once for each call, with its writes in the batch of its result, and one that needs
//     an approval only after a client has approved the call
//   - the result of a call never changes; the result of a call of a client's tool is one that a client has sent
//   - at rest, the page of each connected client equals the conversation
//
// # Limits
//
// A client knows the place of a reply from the ids of the messages that it answers, and keeps its own message until it
// knows that the message was stored. The page of a client is not compared if the client has missed a transcript, or
// if its request may have changed the conversation at the same time as another client. A client that sends a request again
// after a deletion may restore messages. A client may also replace the text of a message with its older copy of it, so the
// text of a message that has a continuation is compared only with its plan.
package randchat
