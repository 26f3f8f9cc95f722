package randchat

import (
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions of a client, and those of the program, which calls the agent. K selects one of the client's requests,
// or of all requests.
const (
	Submit Op = "Submit" // a client sends a new request with a new message
	Again  Op = "Again"  // a client sends request K again
	Probe  Op = "Probe"  // a client asks for a reply to resume
	Leave  Op = "Leave"  // a client ends its connection
	Join   Op = "Join"   // a client connects, and loads the page again if N is even
	Edit   Op = "Edit"   // a client replaces a message of the user, and all after it
	Redo   Op = "Redo"   // a client requests another reply in place of one, and of all after it
	Stop   Op = "Stop"   // a client cancels request K
	Wipe   Op = "Wipe"   // a client clears the conversation
	Cancel Op = "Cancel" // the program cancels request K
	Clear  Op = "Clear"  // the program clears the conversation
	Answer Op = "Answer" // a client sends the result or the approval of a call
	Ask    Op = "Ask"    // the program asks
	Wait   Op = "Wait"   // the program waits for request K

	// The instructions about approvals. N selects the digest, the decisions and the time: see [Observer.decide].
	Decide  Op = "Decide"  // the program decides about a call
	Operate Op = "Operate" // an operator decides about a call
	Audit   Op = "Audit"   // the program reads the audit log
	End     Op = "End"     // the incarnation ends during the run of a call

	Complete Op = "Complete" // the other party of an external call completes it. N selects the result and the time.

	Grant Op = "Grant" // the program grants the budget; request K selects the reply

	Pass Op = "Pass" // N seconds pass
)

// Instr is an instruction. Client is the number of the client that executes it.
type Instr struct {
	Op        Op
	At        int  `json:",omitempty"` // milliseconds after the beginning of the run
	Client, K int  `json:",omitempty"`
	N         int  `json:",omitempty"`
	Plan      Plan `json:",omitzero"`
}

// Plan is the reply to a request: its words, each with an act of the handler before it.
type Plan struct {
	Model bool   `json:",omitempty"` // chat.Answer executes it, with a model
	Words []Word `json:",omitempty"`
	// Recovery has the decisions of OnRecovery, one after the other and again.
	Recovery []Recovery `json:",omitempty"`
}

// Word is a word of a reply.
type Word struct {
	Before Act   `json:",omitempty"`
	N      int   `json:",omitempty"`
	Calls  []Use `json:",omitempty"` // of Call, in one step of the model
}

// Act is an act of a handler.
type Act string

// The acts of a handler before a word.
const (
	Go    Act = ""      // none
	Sleep Act = "Sleep" // N milliseconds
	Sync  Act = "Sync"
	Save  Act = "Save"  // the handler saves a checkpoint
	Fail  Act = "Fail"  // the handler returns an error
	Panic Act = "Panic" // the first N times

	Call Act = "Call" // the act of a model that calls tools
)

// GoString returns the name of the constant.
func (o Op) GoString() string { return "randchat." + string(o) }

// GoString returns the name of the constant.
func (a Act) GoString() string { return "randchat." + string(a) }

// weighted is a value with its weight in a draw.
type weighted[T any] struct {
	value  T
	weight int
}

func pick[T any](r *rand.Rand, from []weighted[T]) T {
	return randtest.Pick(r, from, func(w weighted[T]) int { return w.weight }).value
}

var (
	ops = []weighted[Op]{
		{Submit, 10}, {Again, 2}, {Probe, 2}, {Leave, 2}, {Join, 3}, {Ask, 2}, {Wait, 2},
		{Edit, 2}, {Redo, 2}, {Stop, 3}, {Wipe, 1}, {Cancel, 2}, {Clear, 1}, {Answer, 5},
		{Decide, 5}, {Operate, 3}, {Audit, 2}, {Complete, 4},
	}
	// toolOps are the instructions of runs about tools.
	toolOps = []weighted[Op]{
		{Submit, 8}, {Again, 1}, {Probe, 1}, {Leave, 1}, {Join, 2}, {Ask, 3}, {Wait, 1},
		{Edit, 1}, {Redo, 1}, {Stop, 2}, {Wipe, 1}, {Cancel, 1}, {Clear, 1}, {Answer, 7},
		{Decide, 9}, {Operate, 6}, {Audit, 2}, {End, 5}, {Complete, 12},
	}
	recoveries = []weighted[Recovery]{
		{RecoverResume, 3}, {RecoverRestart, 2}, {RecoverStop, 1}, {RecoverDiscard, 1}, {RecoverBroken, 1},
	}
	modelActs = []weighted[Act]{{Go, 6}, {Sleep, 6}, {Fail, 1}, {Call, 16}}
	acts      = []weighted[Act]{{Go, 10}, {Sleep, 10}, {Sync, 2}, {Save, 3}, {Fail, 1}, {Panic, 2}}
)

// drawInstr draws an instruction of a run, about tools or not.
func drawInstr(r *rand.Rand, clients int, tools bool) Instr {
	from := ops
	if tools {
		from = toolOps
	}
	in := Instr{Op: pick(r, from), Client: r.IntN(clients), K: r.IntN(4), N: r.IntN(100)}
	switch in.Op {
	case Submit, Ask, Edit, Redo:
		in.Plan = drawPlan(r, tools)
	}
	return in
}

// drawPlan draws a plan, in runs about tools usually one of a model.
func drawPlan(r *rand.Rand, tools bool) (p Plan) {
	for range r.IntN(3) {
		p.Recovery = append(p.Recovery, pick(r, recoveries))
	}
	from := acts
	if r.IntN(6) < 2 || tools && r.IntN(3) > 0 {
		p.Model, from = true, modelActs
	}
	for i := range 1 + r.IntN(4) {
		w := Word{Before: pick(r, from), N: r.IntN(100)}
		if i == 0 && p.Model && tools {
			w.Before = Call
		}
		switch w.Before {
		case Sleep:
			w.N = []int{10, 10, 400, 3000}[r.IntN(4)] * (1 + r.IntN(100))
		case Panic:
			w.N = 1 + r.IntN(2)
		case Call:
			for range pick(r, together) {
				u := drawUse(r)
				if n := len(w.Calls); n > 0 && r.IntN(3) == 0 {
					u = w.Calls[n-1] // with an equal input
				}
				w.Calls = append(w.Calls, u)
			}
		}
		p.Words = append(p.Words, w)
	}
	return p
}
