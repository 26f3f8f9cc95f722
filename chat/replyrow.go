package chat

import (
	"context"
	"encoding/json"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

const (
	// maxRequest bounds a request without its messages, in bytes: its row takes nearly twice that, and must have space
	// for the result.
	maxRequest = 1 << 20
	// maxFailure bounds the stored text of an error, in bytes.
	maxFailure = 4 << 10
)

// replyRow is a request and the state of its reply. The Owner of its item is a call of the handler: see
// conversation.nextCall.
type replyRow struct {
	work.Item
	ID        string          // chosen by the client
	Number    uint64          // in order of arrival
	Continues bool            // continues a message of the assistant: the last one, or an older one if Older is set
	Conn      string          // id of the connection that sent the request; "" for the program
	Body      json.RawMessage // of the request, without the members of the wire protocol
	Tools     json.RawMessage // of the client
	Users     []string        // ids of the user's messages at the end of the sent list
	Message   string          // id; set when the reply begins, or if it may only continue this message
	Place     uint64          // of that message
	Work      string          // of that message: see uimessage.Stored
	From      uint64          // number of the first chunk of its log
	Fiber     string
	FirstRun  uint64 // chunks in the log after the first call of the handler
	Logged    uint64 // chunks in the log when the last interruption was charged
	Submits   bool   // a client's submission: see Policy
	Overlaps  bool   // was queued because of a result, while a reply to the same message was running
	Completes bool   // was queued by Complete: see AnswerOptions.MaxSteps
	Answers   bool   // continues because of a client's answer or the program: otherwise skipped
	Older     bool   `msgpack:",omitempty"` // continues a message that newer ones follow: see findMessage
	Error     string // error text for the program and operators
	Public    string // error text for clients
	Created   int64
	Ended     int64
	Collects  bool           // the program has chosen the id, and may repeat the request until it has the result
	Asked     *returnAddress `msgpack:",omitempty"` // of a request of another agent, and of continuations of its reply
	Collected int64          // when Wait first returned the result of such a request; 0 before
}

// forgotten returns the time when the ended request is deleted, in ms.
func (r *replyRow) forgotten() int64 {
	switch {
	case !r.Collects:
		return r.Ended + retainEnded.Milliseconds()
	case r.Collected == 0:
		return r.Ended + retainUncollected.Milliseconds()
	}
	return r.Collected + retainEnded.Milliseconds()
}

// finalStatuses are the statuses of requests that have ended.
var finalStatuses = [...]Status{
	work.Completed: StatusCompleted, work.Failed: StatusFailed, work.Cancelled: StatusAborted, work.Skipped: StatusSkipped,
}

// status returns the public state of the request.
func (r *replyRow) status() Status {
	switch r.State {
	case work.Waiting:
		return StatusQueued
	case work.Running:
		return StatusRunning
	}
	return finalStatuses[r.Outcome]
}

// running reports whether the request is being answered.
func (r *replyRow) running() bool { return r.State == work.Running }

var replies = dohost.Collection[replyRow]{
	Name: "dohost.chat.replies",
	Key:  func(r replyRow) string { return r.ID },
	Indexes: []dohost.Index[replyRow]{
		{Name: "fiber", Of: func(r replyRow) dohost.Key { return partialKey(r.Fiber != "", dohost.KeyOf(r.Fiber)) }},
		{Name: "open", Of: func(r replyRow) dohost.Key { return partialKey(r.Open(), dohost.KeyOf(r.Number)) }},
		{Name: "ended", Of: func(r replyRow) dohost.Key { return partialKey(!r.Open(), dohost.KeyOf(r.Ended)) }},
		{Name: "forgotten", Of: func(r replyRow) dohost.Key { return partialKey(r.State == work.Ended, dohost.KeyOf(r.forgotten())) }},
	},
}

// partialKey returns the key of a row in a partial index; "" if the row is not in the index.
func partialKey(is bool, k dohost.Key) dohost.Key {
	if is {
		return k
	}
	return ""
}

// chunkRow is a chunk of a reply that has not ended.
type chunkRow struct {
	Reply uint64 // its number
	Seq   uint64 // from 0
	JSON  []byte
}

var chunkRows = dohost.Collection[chunkRow]{
	Name: "dohost.chat.chunks",
	Key:  func(r chunkRow) string { return string(dohost.KeyOf(r.Reply) + dohost.KeyOf(r.Seq)) },
	// Numbers are never used again, so no row is replaced.
	Blind: true,
}

// noteRow is a singleton of a conversation.
type noteRow struct {
	Name  string
	Count uint64
	Body  json.RawMessage
	Tools json.RawMessage
	Reply string
	Text  string
	Floor uint64 // see transcript
	Bytes uint64 // of the messages' JSON
	Fiber string // of the latest sweep, or the latest that summarises
	// Covered is the last place that a summary covers; 0 if there is no summary.
	Covered uint64 `msgpack:",omitempty"`
	// Again makes the fiber that summarises make another summary, and Until is the end of a pause in Unix milliseconds: see summaryKind.
	Again bool  `msgpack:",omitempty"`
	Until int64 `msgpack:",omitempty"`
}

// The names of notes.
const (
	requestNote  = "request"  // Body and Tools of the last request
	terminalNote = "terminal" // Reply that has failed and its public error Text, until another reply begins
	numberNote   = "number"   // Count of requests
	extentNote   = "extent"   // Count and Bytes of messages, their Floor, and Covered
	sweepNote    = "sweep"    // Fiber of the latest sweep
	summaryNote  = "summary"  // Fiber of the latest that summarises, Again, Until, and Count of the charged failures
	approvalNote = "approval" // Count of events in the audit log
)

var notes = dohost.Collection[noteRow]{
	Name: "dohost.chat.notes",
	Key:  func(n noteRow) string { return n.Name },
}

// putReply, insertReply and deleteReply are the only writers of requests.

func (k *conversation) putReply(ctx context.Context, row replyRow) error {
	return replies.Put(ctx, k.store(), row)
}

// insertReply writes a new request, and begins to answer it if no other is being answered.
func (k *conversation) insertReply(ctx context.Context, row replyRow) (err error) {
	if row.Number, err = k.nextNumber(ctx); err != nil {
		return err
	}
	if err := replies.Insert(ctx, k.store(), row); err != nil {
		return err
	}
	return k.beginNext(ctx)
}

func (k *conversation) deleteReply(ctx context.Context, id string) error {
	_, err := replies.Delete(ctx, k.store(), id)
	return err
}

// nextNumber returns the number of the next request.
func (k *conversation) nextNumber(ctx context.Context) (uint64, error) {
	n, err := k.readNote(ctx, numberNote)
	if err != nil {
		return 0, err
	}
	n.Name = numberNote
	n.Count++
	return n.Count, notes.Put(ctx, k.store(), n)
}

// running returns the request that is being answered.
func (k *conversation) running(ctx context.Context) (r replyRow, ok bool, err error) {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Limit: 1})
	if err != nil || len(open) == 0 || !open[0].Value.running() {
		return r, false, err
	}
	return open[0].Value, true, nil
}
