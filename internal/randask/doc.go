// Package randask draws programs for agents of several objects that ask each other, runs them, and compares the history of all objects with a
// model.
//
// Each of three objects has the same four agents of package inbox, over one collection of messages. Each agent may ask those of any object,
// with an [inbox.AgentTool]: with a time limit or none, with several depths, one with Insert and Wait, and one that does not exist. A [Program]
// is a list of instructions for one object. It sends messages with requests and deadlines, changes and deletes the messages that wait, also
// those of agent tools, and waits for responses. The content of a message is a task: the questions of its agent, step by step, each with an
// object, an agent and a task, and the failures and the time of its model. So the answer of the model is a function of the task and of the
// results of its questions, and names both.
//
// The feed of the messages has each committed change. When all objects are at rest, these histories and the results that the models have seen
// are compared with the rules of docs/inbox.md, which share no code with package inbox:
//
//   - a call of an agent tool is one message of the asked object, with the content, the sender and the path that follow from the tasks: it has
//     one id in all repetitions of its cycle. It is inserted again only if it was deleted. Equal calls of one step are two messages
//   - its deadline is the end of the time limit, or that of the request that the caller answers, if that is earlier
//   - a call that would make agents wait for each other in a cycle, or that exceeds the depth, inserts nothing, and its result names the path
//   - the result of another call is the content of the one response, which is not later than the time limit; or it is the error of the time
//     limit, which is over, and there is no response in time; or it is the error of a request that was deleted or parked
//   - each message has one end: a response to its sender, which is the only one to a request; no response after its deadline; or it is parked
//     after its attempts. A response contains the results of all questions of the last message of its cycle, in their order
//   - the model is asked for the last message of its cycle, before the deadline of that cycle, and not again for a step whose question has
//     begun, if the prompt is the same. The rows of a cycle are messages that wait, and its prompt has neither requests of the agent to others
//     nor the responses to them
//   - no agent is asked before the rows of the cycle are durable, and no acknowledged change is lost
//   - a scout is not asked when its object has used up the tokens of the day, and its messages are answered on a later day, or expire
//   - WaitReply returns the only response to a request, or an error if it has none
//   - a cycle continues within 4 minutes of the last response to the questions of its step: without a wake-up it would look after 5. This holds
//     for agents that have no budget and no task that is silent or fails
//
// No rule depends on whether an agent answers its other messages while it waits for another agent.
//
// # Limits
//
// If the caller or the asked object is interrupted, the caller may miss a response in the last 6 s of the time limit: then the model accepts both
// results. All rows decode, all clocks agree, and nothing deletes or changes responses. The model counts a call towards the budget once the
// response of its cycle is stored; no budget is granted. Package randinbox checks the attempts of a call.
package randask
