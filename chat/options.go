package chat

import "time"

// Options tunes the conversations of a class. The zero Options mean the defaults.
type Options struct {
	// Recovery bounds how often and how long an interrupted reply resumes.
	Recovery Recovery
	// Stall bounds the time without a chunk from the handler. A handler that exceeds it is cancelled, and its reply
	// resumes as after the end of an incarnation. Time spent waiting for a full disk does not count. Zero means no bound;
	// negative is an error.
	Stall time.Duration
	// Policy decides about a submission that arrives while another request is open. Empty means [PolicyQueue].
	Policy Policy
	// Debounce is how long [PolicyDebounce] waits for another submission. Zero means 750 ms; negative means no wait.
	Debounce time.Duration
	// MaxMessages bounds the number of stored messages: the oldest are deleted. Zero means no bound; negative is an
	// error. It does not bound the messages of a model's prompt. With History it must be at least twice History.Threshold;
	// the summaries of deleted messages stay.
	MaxMessages int
	// MaxBytes bounds the JSON of the stored messages, in bytes: messages of a client beyond it are refused with a
	// [*dohost.LimitError]. Replies, and messages of the program, are stored in any case. Zero means 32 MiB; negative
	// means no bound. A transcript is one frame, and most requests read all of it, so a conversation in use needs a
	// small multiple of this in memory.
	MaxBytes int
	// KeepApprovals is how long the audit log keeps an event (see [Approvals]). Zero means 90 days; negative means forever.
	// Each new event deletes up to two old ones.
	KeepApprovals time.Duration
	// Price returns the price of a model call, in millionths of a currency. The argument has the names and the tokens that the model
	// reported, or their estimates. The agent calls it with the turn, several times for a call; it must not wait, and must return
	// equal prices for equal arguments. If it panics, the call costs the amount that the model reported. Nil means the cost that the
	// model reports, which is zero for the models of this module.
	Price func(u Usage) int64
	// Budget bounds the use of models.
	Budget Budget
	// KeepUsage is how long the agent keeps the row of a model call (see [ModelCalls]). Zero means 90 days; negative means as long as
	// the row is one of the last 10,000. Each new row deletes up to two old rows.
	KeepUsage time.Duration
	// SystemFromClients lets clients store, change and delete system messages, which become instructions to the
	// model. Otherwise system messages of clients are dropped.
	SystemFromClients bool
	// History makes a model summarise the oldest messages of long conversations. Nil means that only [Summarize] does.
	History *History
}
