// Package chat provides conversational agents. A reply survives the end of the incarnation that streams it. The
// package speaks the wire protocol of @cloudflare/ai-chat, so front-ends that use its React hook work unmodified.
//
//	const Helpers dohost.Namespace[Helper] = "helper"
//
//	type Helper struct{ *chat.Agent[struct{}] }
//
//	func Class() dohost.Class {
//		return chat.Bind(Helpers,
//			func(_ context.Context, a *chat.Agent[struct{}]) (*Helper, error) { return &Helper{a}, nil },
//			&chat.Handlers[Helper, struct{}]{Reply: func(h *Helper, ctx context.Context, r *chat.Reply) error {
//				return r.Say(ctx, "Hello.")
//			}})
//	}
//
// [Message] and [Chunk] have the format of the AI SDK, as its hooks and models use it. Members that this package does
// not know are preserved unchanged.
//
// # Replies
//
// A client sends a request, and the class's handler answers it with a [Reply]: a stream of chunks that builds one
// assistant message. The agent answers requests one at a time, in order of arrival. A reply runs as a fiber
// ([agent.StartFiber]), so it outlives its connection and its incarnation. A later incarnation calls the handler
// again; the handler finds the chunks sent so far in [Reply.Partial] and continues from there. A client that
// reconnects receives those chunks, then the new ones.
//
// # Guarantees
//
//   - A request, its messages and its body are durable before its reply begins. The row of an unanswered request
//     exists until the request is answered. The row is the state of the reply; the fiber only does the work.
//   - The agent answers one request at a time, and is not idle while one is due (see [PolicyDebounce]): the batch that
//     ends a reply also starts the fiber of the next one.
//   - A chunk is numbered in the log of its reply, from 0 without a gap, and is durable before any client receives
//     it. A replayed chunk keeps the number of the live chunk.
//   - A log is one stream, regardless of how many incarnations wrote it: it has one start, with the message's only
//     id; an interrupted text continues in the same part; a tool call keeps its result. Repetitions by a later run
//     are not logged. So the message that the chunks build, and its texts, only grow.
//   - A reply ends in one batch: the message is stored, its log is discarded, its row has the final status, and the
//     next reply begins. Clients receive the transcript before the end-of-reply frame.
//   - A reply that was stopped or given up ends immediately, even if its handler still runs. The handler can no
//     longer add chunks to it.
//   - A run of the handler is counted, durably, before it begins, so a crash during the run counts. One pure function
//     of the row's counters decides whether another run follows.
//
// # Tool calls
//
// A call has one row, from the chunk that creates the call until its message is deleted. Its states:
//
//	pending ─────────────────────────────▶ running ──▶ completed, failed, unknown
//	   │                                    ▲ │  ▲
//	   │                                    │ └──┘ interrupted, with PolicyIdempotent or PolicyReconcile
//	   ├──▶ approval ──▶ pending, approved ─┘ │
//	   │       └───▶ denied, expired          └──▶ external ──▶ completed, failed, unknown
//	   └──▶ client ──▶ completed, failed
//
// These rules hold:
//
//   - A chunk of a call and the change of the call's row are one batch. So are the start of a call and the end of its wait
//     for an approval.
//   - A call that has begun or ended never becomes pending again, regardless of the messages that a client or the program
//     stores.
//   - A run of a call is a task, which begins when its running row is durable. A running row without a task of this
//     incarnation was interrupted, and its effect is unknown.
//   - A call's result is written in the batch of its task's last writes, independently of other calls.
//   - An external call leaves the state running when its Run returns, or with an earlier
//     completion. Without Async, the batch of the first completion also queues the continuation of
//     the message.
//   - When a decision changes a row, the same batch adds an event to the audit log.
//
// # Summaries
//
// A summary covers the messages of a range of places ([History], [Summarize]). These rules hold:
//
//   - The ranges of the summaries follow each other from the start of the conversation, and the window of a context begins after the
//     last of them. So each message is in one summary or in the window.
//   - A summary is stored only if its messages have not changed since the model read them. Every later write or deletion of a
//     covered message deletes that summary and the summaries after it, in the same batch. Only Options.MaxMessages deletes
//     messages and keeps their summaries.
//   - No summary covers a message that a reply may still change or answer, the question before such a message, or a
//     message with a call without a result.
//
// # Usage
//
// Each model call has a row ([ModelCalls]). These rules hold:
//
//   - The row is durable before the model is asked.
//   - A change of a row and the changes of the totals of its day, its reply and the agent are one batch. So each total
//     is always the sum of its calls, including calls with deleted rows.
//   - A budget ([Budget]) is checked against the totals in the store. The grant of an approval and the end of the wait for it
//     are one batch.
package chat
