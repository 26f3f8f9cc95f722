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
//   - the result of a call never changes; the result of a call of a client's tool is one that a client has sent
//   - the model is asked when all calls have results, and the calls of a step run concurrently
//   - at rest, the page of each connected client equals the conversation
//
// # Calls and approvals
//
// Tools have effects on a service outside of the agent, which survives all endings and judges them (service.go). It
// recognises the keys of calls with the policy Idempotent, and answers Find truthfully: after NotDone it refuses the requests of
// earlier runs. Clients, the program and an operator decide about calls, also close to the end of the time to decide. Each
// decision of the program and of an operator has a reason of its own, so each event of the audit log shows its origin. The checks
// are:
//
//   - a call has at most one effect, and exactly one if it is completed; its output is the receipt of that effect, and its
//     writes are in the batch of its result
//   - a call with the policy AtMostOnce begins once; one with Idempotent or Reconcile at most five times, always with the same key,
//     which no other call has; one with Reconcile begins again only after Find has answered NotDone
//   - a call that needs an approval begins only if an approval was sent, and the audit log has it, without a later refusal
//   - a call that was refused or has expired never begins
//   - a call is failed only if nothing has happened, or if its policy is Idempotent
//   - a call is unknown only if it was interrupted or took too long, or if its error proves nothing, or if Find does not know; one with
//     Idempotent or Reconcile only after several endings
//   - a run that takes longer than its tool may has an ended context
//   - two calls have the same digest if and only if their tools and inputs are equal
//   - the audit log only grows, and has numbers without a gap; each event has a decision that was sent, its actor and its
//     reason, and a possible place after the earlier events of its call
//   - a decision is applied, late, stale or refused as the documentation says; its event is in the batch of that result, and a late
//     one has at most 20 events for a call
//   - no decision is applied after the time to decide, and no call expires before
//   - a call waits at rest only for a client or for an approval without a limit, or because its message does not continue
//   - at rest, the parts of the messages, the calls that operators see, the list of the open calls and the audit log agree
//
// # External calls
//
// The run of a call of an external tool hands it over to the program, which completes it by its key: with a result, an error or an
// unknown outcome, once or twice, at any time after the run has begun, also close to the end of the time for that. Operators
// complete calls, too, and clients try to. The checks are:
//
//   - the first completion counts, before the end of the time: the call has its state and its result, in the batch of Complete
//   - a completion of a call that has ended changes nothing, and Complete finds each call that the conversation has
//   - a call that was handed over waits until it is completed or its time is over: no interruption and no stop ends it
//   - the part of an asynchronous call has its key and the status queued, and its row has the completion
//   - a call without a doubt about its effect is not unknown, and one fails only by a completion or an error of its run
//   - the last message continues after its last completion, and the audit log has the completions of operators
//
// # Budgets
//
// Some runs have a budget for the calls of models in a reply, on a day or by the agent (budgets.go). An exhausted budget makes a call that
// waits for a decision, as the calls of tools do; all parties decide about it, and the program grants the budget at any time. The checks are
// like the checks of approvals, and:
//
//   - the model is asked at most as often as the budget allows since the last grant, and an approval is one grant
//   - a reply asks for a grant only if the budget is exhausted; its call has the scope, the amount and the limit
//   - no model gets such a call, and a client approves one only if the budget allows that
//   - at rest, each grant of a scope is one by the program, or has a completed call
//
// # Access
//
// In some runs the class refuses all requests, so that clients need a dohost.GrantAccess, and some connections may only read (viewers.go).
// They request changes, too. The model does not know these requests, so their effects would be faults.
//
// # Limits
//
// A client knows the place of a reply from the ids of the messages that it answers, and keeps its own message until it
// knows that the message was stored. The page of a client is not compared if the client has missed a transcript, if
// a call of a reply in progress was approved (the page makes the message from chunks, which have no approval), or
// if its request may have changed the conversation at the same time as another client. A client that sends a request again
// after a deletion may restore messages. A client may also replace the text of a message with its older copy of it, so the
// text of a message that has a continuation is compared only with its plan.
package randchat
