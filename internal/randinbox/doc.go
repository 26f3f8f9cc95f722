// Package randinbox draws programs for inboxes at random, runs them, and compares each step with a model.
//
// One object has three agents of package inbox that share a collection of messages, an inbox of another form over a collection of jobs, and
// streams of chunks. A [Program] is a list of instructions. A message or a job has instructions, too: the cycle that answers it executes
// them, so agents send each other requests, and wait for the replies. Clients watch the messages while the programs run.
//
// The model is a value in the object's own storage. Each instruction changes it in the batch of its call, and Respond changes it in the
// batch of the response. So the end of an incarnation drops a change of the model together with the change of the rows, and the two must
// agree whenever an event has the turn. The model shares no code with package inbox.
//
//   - the rows are exactly those of the model: so a row leaves the index in the batch of its effects, and a message with a stored id is
//     refused
//   - a call begins with the first rows of a group that are due, in the order of the index, up to the batch of the inbox: three rows that
//     are inserted together make one cycle, and a fourth that is inserted during that cycle makes a second one. All cycles of a call have
//     these rows and one position
//   - Build gets rows that wait, as they are then; the prompt has the conversation of the agent before them, within its limits
//   - a cycle inserts one reply to its rows, with the text of the model; a request has one reply, also if there are several messages with
//     its id. Replies, and rows with a field of a reply, begin no call
//   - the model is asked once for the messages of a cycle in an incarnation, unless its answer was an error; the reply has that answer, also if
//     the conversation has become longer since. The effect of a tool has one key at a position. Neither happens before the rows are durable
//   - a Respond that succeeds and leaves a row in the index, in any way, has failed, and its writes are rolled back
//   - the model is not asked for a request that has a reply, and WaitReply does not wait for a parked one
//   - the attempts of a call are its failed cycles and its interruptions, and a budget that is exhausted counts as none; rows are parked
//     exactly when their attempts are used up, and reported; writes of other code, and Retry, bring them back
//   - Reply returns the reply of the model; WaitReply returns it, or ErrNoReply if no agent is going to answer; Drain returns when no row is
//     pending, or at a limit
//   - the rows that a watch folds are those of its query at each position, whose changes are durable. A watch begins again only if the feed
//     has dropped changes since its position
//   - a chunk that is stored does not change. A stream writes each of its chunks once, after those that are stored, and a repetition with
//     another chunk, or a second writer, ends with a conflict
//
// The [Observer] lives outside of the object. It has the acknowledged version of the model, which a new incarnation must find. When the
// object is at rest, each row that waits is parked or has a receiver that is no agent, and each watch has the rows of its query.
//
// # Limits
//
// If a row is written during a call for it, the model accepts the attempts and the rows of that call as they are, until the call has ended.
// Cycles retry no parked rows, and do not delete rows of their own calls. It does not know the time of a retry. Programs use no DeleteAll,
// budgets of [chat.Budget] are replaced by a model that reports an exhausted one, and all senders are in one object.
package randinbox
