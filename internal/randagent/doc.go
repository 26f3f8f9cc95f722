// Package randagent draws programs for an agent at random, runs them, and compares each step with a model.
//
// A [Program] is a list of instructions of package agent: fibers with checkpoints, schedules, queue items and rows that are
// work, whose bodies are instructions too. The model is a value in the agent's own storage. Each instruction changes it in the
// batch of its call of the agent, and each fiber, callback, hook and call for rows changes it in its last batch. So the end of an
// incarnation drops a change of the model together with the change of the agent's rows, and the two must agree
// whenever an event has the turn.
//
// The model shares no code with package agent. The agent's lists are compared with it before each instruction, and after
// each one that changes the agent:
//
//   - the status, key, checkpoint and result of each started fiber; each ends once, and is kept for its retention period
//   - a fiber resumes from exactly the last checkpoint in the model, and is not called twice at the same time
//   - a fiber fails only after as many errors and ends of incarnations as its kind allows
//   - OnFiberEnded, OnInterrupted and OnRecovery get the fibers that the model lets them get, with rising attempts
//   - a schedule runs at its time or later, until it has ended or was cancelled
//   - the state is the last one that Validate has accepted; OnStateChanged gets each change once it is committed, in order
//   - a client gets each change of the state once it is committed, in order and completely, from its connection to its
//     end; its messages run programs, in order, each once; if it is readonly, neither it nor its programs change the state
//   - OnClose is called once for a connection that its client has ended, unless the incarnation or the process has ended
//   - the agent lists the sub-agents of the model; a sub-agent has its acknowledged value until it is deleted or destroys
//     itself, and nothing of it is left afterwards, unless a program adds it again
//   - queue items run one at a time, in order; the dead letters are those that failed for good
//   - a method of OnRows, OnRowBatch or OnRowGroups gets rows that are in the index, as they are then, and with them those of
//     their call before. Calls begin with the first rows of the index that are due, in its order, divided by number and
//     group, and the calls that run at a time are as many as the options allow, at most. A row that leaves the index and
//     enters it again is not due before the end of a call for it, and gets another position
//   - the agent lists exactly the rows whose calls have begun, and have not taken them out of the index. So the batch that
//     finishes a row ends its work
//   - each error, each nil that leaves a row in the index, and each interruption counts as one attempt, until a row leaves the
//     index by its call, or other code writes it or retries it; a PostponeError counts as none. Rows are parked exactly when
//     their attempts are used up, and get no call until other code writes them or retries them
//   - a call after an error or a PostponeError does not begin before its time, which is the documented one
//   - of the rows that were interrupted more than once, one call at a time begins again
//
// The [Observer] lives outside of the agent. It has the acknowledged version of the model, which a new incarnation must
// find, and counts the incarnations. When the agent is at rest, each fiber has ended, the queue is empty, no schedule is
// left, OnFiberEnded was called for each fiber, and each row that is in an index of work is parked.
//
// # Limits
//
// The agent fails a fiber, or makes a dead letter of an item, without a call of the program if it was interrupted too
// often. The model accepts that if enough incarnations have ended since. If a deletion of a sub-agent fails, the model
// accepts that it happens later. Programs do not destroy the agent itself, and cancel no fibers of RunFiber; sub-agents
// have no work and no clients of their own. Clients call no methods, and no valid change of the state is theirs.
//
// A write by a method of OnRows makes no other row due: the model has the agent's rule that only writes of other code end the
// wait of a row, or bring a parked row back. A PostponeError ends the count of interruptions, but not that of errors. If a
// Transaction with a write of a running row is rolled back, the model accepts that the agent counts the write. While a row that
// has left a running call waits for the end of the call, the model accepts the calls of its method in any order. All rows
// decode, and programs do not use DeleteAll.
package randagent
