package randask

import (
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions. K selects an agent, or one of the messages, calls or requests of the object; N is a number.
const (
	Send        Op = "Send"        // a message to agent K, with a sender, a request, a deadline and a task that N selects; Body has the questions
	Ask         Op = "Ask"         // in the Body of Send, Edit and Ask: the agent asks agent K; Body has the questions of that agent
	Repeat      Op = "Repeat"      // a message with the sender and the request of request K, the newest first, and a deadline that N selects
	Edit        Op = "Edit"        // the content or the deadline of the pending message K of a program
	Delete      Op = "Delete"      // the pending message K of object N, or of its own if N is negative: those of agents are the first
	Retry       Op = "Retry"       // the rows of the parked call K
	Release     Op = "Release"     // the silent agents answer
	WaitReply   Op = "WaitReply"   // to request K, for N / 10 s at most
	Await       Op = "Await"       // a function that does nothing
	Sleep       Op = "Sleep"       // N milliseconds
	Sync        Op = "Sync"        //
	Transaction Op = "Transaction" // Body; rolled back if N is odd
	Fail        Op = "Fail"        // the first N times
	Panic       Op = "Panic"       // the first N times
)

// Instr is an instruction.
type Instr struct {
	Op   Op
	K, N int     `json:",omitempty"`
	Body []Instr `json:",omitempty"`
}

// GoString returns the name of the constant.
func (o Op) GoString() string { return "randask." + string(o) }

// control is for [randtest.Execute].
func (in Instr) control() (kind randtest.Control, n int, body []Instr) {
	return randtest.Control(in.Op), in.N, in.Body
}

// Program is the work of one call.
type Program = randtest.Program[Instr]

// weighted is an instruction with its weight in a draw.
type weighted struct {
	op     Op
	weight int
}

func weightOf(w weighted) int { return w.weight }

var (
	rowOps = []weighted{{Send, 14}, {Repeat, 3}, {Edit, 2}, {Delete, 6}, {Retry, 2}, {Release, 2}, {Transaction, 2}}
	// turnOps release the turn, or are not allowed in a transaction.
	turnOps = []weighted{{Await, 2}, {Sleep, 8}, {Sync, 1}, {WaitReply, 5}}
	endOps  = []weighted{{Fail, 3}, {Panic, 2}}
)

// Draw draws a program.
func Draw(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: drawBody(r, 1+r.IntN(4), true)}
}

// drawBody draws n instructions; with free ones that release the turn, too.
func drawBody(r *rand.Rand, n int, free bool) []Instr {
	var list []Instr
	for range n {
		from := rowOps
		switch k := r.IntN(100); {
		case k < 35 && free:
			from = turnOps
		case k < 39:
			from = endOps
		}
		op := randtest.Pick(r, from, weightOf).op
		if op == Transaction && !free {
			op = Send
		}
		in := drawInstr(r, op)
		if op == Delete && !free { // a transaction calls no other object
			in.N = -1
		}
		list = append(list, in)
		switch {
		case op != Send:
		case r.IntN(5) == 0: // in the same cycle, usually
			list = append(list, Instr{Op: Repeat, N: r.IntN(120)})
		case free && len(in.Body) > 0 && r.IntN(3) == 0: // while the agent waits
			list = append(list, Instr{Op: Sleep, N: 60 << r.IntN(9)}, Instr{Op: Delete, N: in.Body[0].K / len(names)})
		}
	}
	return list
}

func drawInstr(r *rand.Rand, op Op) Instr {
	in := Instr{Op: op, K: r.IntN(6), N: r.IntN(120)}
	switch op {
	case Fail, Panic:
		in.N = 1 + r.IntN(3)
	case Sleep:
		in.N = []int{1, 100, 1000, 10_000}[r.IntN(4)] * (1 + r.IntN(25))
	case Transaction:
		in.Body = drawBody(r, 1+r.IntN(3), false)
	case Send:
		return drawSend(r, r.IntN(4) > 0)
	case Edit:
		in.Body = drawAsks(r, 2)
	}
	return in
}

// drawSend draws a message, with a question if asks is set.
func drawSend(r *rand.Rand, asks bool) Instr {
	in := Instr{Op: Send, K: r.IntN(21), N: r.IntN(10_000)}
	for asks && len(in.Body) == 0 {
		in.Body = drawAsks(r, 1)
	}
	return in
}

// maxDepth bounds the agents that ask each other.
const maxDepth = 4

// drawAsks draws the questions of an agent at a depth.
func drawAsks(r *rand.Rand, depth int) (list []Instr) {
	if depth > maxDepth {
		return nil
	}
	for range []int{0, 1, 1, 2}[r.IntN(4)] {
		list = append(list, Instr{Op: Ask, K: r.IntN(21), N: r.IntN(10_000), Body: drawAsks(r, depth+1)})
	}
	return list
}
