// Package inbox builds agents with a collection as their inbox: the agent answers every row that waits in the
// collection, even after a crash. Any code may insert rows.
//
// An [Inbox] has the functions of a cycle: Build makes the messages for a model from the rows that wait, Generate asks the model,
// and Respond writes the response and takes the rows out of the inbox. [On] adds an inbox to a class of agents. The rows may have
// any type. [ForMessages] returns a complete Inbox for rows of one given type, [Message]: an [Agent] with a name, instructions, a
// model and tools.
//
// # A cycle
//
// An inbox uses [agent.OnRowGroups]: its work is the rows of an index. One cycle of an inbox runs at a time in an object. A cycle
// takes up to Options.Batch of a group's rows that are in the index when the cycle begins. So three rows that are inserted
// together cause one cycle, and a fourth that is inserted during that cycle causes a second.
//
//  1. Build, and then Generate, run with the turn, and may give it up.
//  2. Respond runs in a [dohost.Transaction]: its writes and the removal of the rows from the index are one batch. If the
//     process ends before that batch is durable, the next incarnation begins the cycle again, from Build; otherwise the cycle is
//     over. So a row has at most one response, although a model may be asked again. If the cycles of a row fail MaxAttempts
//     times, the row is parked without a response. A request that misses its deadline gets no response either.
//  3. Respond is not called if other code has changed or deleted a row of the cycle since the cycle began. The cycle begins again
//     with the rows as they are now, at most three times in succession; then it has failed, and is repeated with a delay. So no
//     change to a row is lost, and no outdated version of a row is answered.
//
// Inbox.Group divides the rows into groups, and each group has its own cycles. An [Agent] uses it for messages with a request id,
// so that each request has its own response.
//
// # Long conversations
//
// With Agent.History a model summarises the oldest messages of the conversation of an [Agent]: see docs/inbox.md. Each
// message of the conversation is in exactly one summary, or unchanged in the prompt. A request that has expired is not
// in the conversation.
//
// # Budgets
//
// A cycle that finds the budget of its [Agent] exhausted is postponed, and asks for a decision: [BudgetQuestions] returns the open questions, and
// [DecideBudget] decides one. An approval grants the limit again, once; a refusal parks the messages. See docs/inbox.md.
//
// # Other agents
//
// The model of an [Agent] may ask other agents, as tools: see Agent.Agents and [AgentTool]. A question is a message
// with a request id, the same in all repetitions of a cycle. So the asked agent gets one request, wherever either agent
// is interrupted. The asking cycle ends, and is repeated when there is a response.
//
// # Positions
//
// All repetitions of a cycle have one position ([dohost.WorkPosition]), no matter whether an interruption, an error or a change to
// a row ended the previous cycle. So an operation of package ledger in Build or Generate is not repeated if its arguments are the
// same, and a durable [chat.Worker] asks its model only for the answers that are not recorded.
package inbox
