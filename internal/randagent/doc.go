// Package randagent draws programs for an agent at random, runs them, and compares each step with a model.
//
// A [Program] is a list of instructions of package agent: fibers with checkpoints, schedules and queue items, whose
// bodies are instructions too. The model is a value in the agent's own storage. Each instruction changes it in the
// batch of its call of the agent, and each fiber, callback and hook changes it in its last batch. So the end of an
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
//
// The [Observer] lives outside of the agent. It has the acknowledged version of the model, which a new incarnation must
// find, and counts the incarnations. When the agent is at rest, each fiber has ended, the queue is empty, no schedule is
// left, and OnFiberEnded was called for each fiber.
//
// # Limits
//
// The agent fails a fiber, or makes a dead letter of an item, without a call of the program if it was interrupted too
// often. The model accepts that if enough incarnations have ended since. If a deletion of a sub-agent fails, the model
// accepts that it happens later. Programs do not destroy the agent itself, and cancel no fibers of RunFiber; sub-agents
// have no work and no clients of their own. Clients call no methods, and no valid change of the state is theirs.
package randagent
