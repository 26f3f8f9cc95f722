// Package chat is agents that one talks to, and whose answers survive the end of an incarnation in
// mid-sentence. It speaks the wire of @cloudflare/ai-chat, so that front-ends that use its React hook
// work unmodified.
//
//	const Helpers dohost.Namespace[Helper] = "helper"
//
//	type Helper struct{ *chat.Agent[struct{}] }
//
//	func Class() dohost.Class {
//		return chat.Bind(Helpers,
//			func(_ context.Context, a *chat.Agent[struct{}]) (*Helper, error) { return &Helper{a}, nil },
//			chat.Handlers[Helper]{Reply: func(h *Helper, ctx context.Context, r *chat.Reply) error {
//				return r.Say(ctx, "Hello.")
//			}}, nil)
//	}
//
// A [Message] and a [Chunk] are those of the AI SDK, as its hooks and models know them. Members that
// this package does not know are kept as they came.
//
// # Replies
//
// What a client asks for is a request, and what the class's handler makes of it a [Reply]: a stream of
// chunks, of which one message of the assistant grows. Requests are answered one after the other, in
// the order in which they came. A reply runs as a fiber ([agent.StartFiber]), so it ends with neither
// the connection nor the incarnation that it was begun in: a later one calls the handler again, which
// finds in [Reply.Partial] what was said so far, and goes on from there. Clients that come back are
// shown all of that, and then what follows.
//
// # What stays true
//
//   - A request, the messages that came with it and what else it said are durable before its reply
//     begins, and the row of a request that has not been answered is there until it is. The row says
//     what has become of the reply; the fiber only does the work.
//   - At most one request is being answered, and while there is one that waits, and whose time has come
//     (see [Debounce]), one is: the segment in which a reply ends is the one in which the next one's
//     fiber is started.
//   - A chunk has its number in the log of its reply, from 0 without a gap, and is durable before any
//     client sees it. Its number is the same whenever it is sent, live or again.
//   - A log is one stream, however many incarnations have written it: one start, with the one id of the
//     message; a text that was cut goes on in the same part; a call that has its outcome keeps it. What
//     a later run repeats of that is not in it. So the message that the chunks make, and its texts, only
//     grow.
//   - A reply ends in one segment: the message is stored, nobody reads its log any more, its row says how it
//     ended, and the next one begins. Clients are sent the transcript before they are told that it has ended.
//   - A reply that was stopped, or given up, ends at once, whatever its handler still does; that can add
//     nothing to it any more.
//   - A run of the handler is counted, durably, before it begins, so that a death in it counts. Whether
//     another follows is decided by one pure function of what the row says.
package chat
