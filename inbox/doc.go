// Package inbox builds agents whose inbox is a collection: a row that waits in the collection makes the agent answer, also
// after a crash, and code of any kind may insert it.
//
// An [Inbox] has the functions of a cycle: Build makes the messages for a model from the rows that wait, Generate asks the model,
// and Respond writes the response and takes the rows out of the inbox. [On] makes an inbox a part of a class of agents. The
// rows are of any type. [ForMessages] returns the Inbox of rows of one given type, [Message], with all functions: an [Agent] with
// a name, instructions, a model and tools.
//
// # A cycle
//
// The work is the content of an index, as with [agent.OnRowGroups], on which an inbox is built. One cycle of an inbox runs at a
// time in an object. It takes up to Options.Batch of the rows of a group that are in the index when it begins. So three rows that
// are inserted together cause one cycle, and a fourth that is inserted during that cycle causes a second one.
//
//  1. Build, and then Generate, run with the turn, and may give it up.
//  2. Respond runs in a [dohost.Transaction]: its writes, and the rows' leaving of the index, are one batch. If the process ends
//     before that batch is durable, the next incarnation begins the cycle again, from Build; otherwise the cycle is over. So a
//     row has at most one response, although a model may be asked again. If the cycles of a row fail MaxAttempts times,
//     the row is parked without a response. A request that misses its deadline gets no response either.
//  3. Respond is not called if other code has changed or deleted a row of the cycle since the cycle began. The cycle begins
//     again with the rows as they are now, at most three times in succession; then it has failed, and is repeated with a delay. So
//     no change of a row is lost, and no row is answered in a form that it no longer has.
//
// Inbox.Group divides the rows into groups with cycles of their own. [Agent] does so for messages with a request id, so that each
// request has a response of its own.
//
// # Long conversations
//
// With Agent.History a model summarises the oldest messages of the conversation of an [Agent]: see docs/inbox.md. Each message that is
// processed is in exactly one summary or, as it is, in the prompt.
//
// # Budgets
//
// A cycle that finds the budget of its [Agent] exhausted is postponed, and asks for a decision: [BudgetQuestions] returns the open questions, and
// [DecideBudget] decides one. An approval grants the limit again, once; a refusal parks the messages. See docs/inbox.md.
//
// # Other agents
//
// The model of an [Agent] may ask other agents, as tools: see Agent.Agents and [AgentTool]. A question is a message with a request id, which all
// repetitions of a cycle have in common. So the asked agent has one request, wherever the two are interrupted. The cycle that asks ends, and is repeated
// when there is a response.
//
// # Positions
//
// All repetitions of a cycle have one position ([dohost.WorkPosition]), whether an interruption, an error or a change of a row has
// ended the cycle before. So an operation of package ledger in Build or Generate is not repeated if its arguments are the
// same, and a durable [chat.Worker] asks its model only for the answers that are not recorded.
package inbox
