package randinbox

import (
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions. K selects one of the agents, messages, requests, jobs or generations in the model, N is a number. Those with a
// Body execute it in a transaction, or in the cycle that answers the row.
const (
	Send        Op = "Send"        // messages to agent K, with a sender, an id and a request that N selects
	Repeat      Op = "Repeat"      // the message K again, with its id
	Shape       Op = "Shape"       // a row to agent K that is no work, of a form that N selects
	Edit        Op = "Edit"        // the pending row K: its content, its request, or nothing
	Delete      Op = "Delete"      // the pending row K
	Reinsert    Op = "Reinsert"    // the pending row K, deleted and inserted again
	Put         Op = "Put"         // jobs from K on
	Retry       Op = "Retry"       // the rows of call K
	Reply       Op = "Reply"       // to request K
	WaitReply   Op = "WaitReply"   // to request K, for N / 10 s at most
	Drain       Op = "Drain"       // with limits that N selects
	Stream      Op = "Stream"      // chunks of generation K, with words and an end that N selects
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
func (o Op) GoString() string { return "randinbox." + string(o) }

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

var (
	rowOps = []weighted{{Send, 12}, {Repeat, 2}, {Shape, 2}, {Edit, 8}, {Delete, 3}, {Reinsert, 3}, {Put, 6}, {Retry, 2}, {Reply, 3}, {Transaction, 3}}
	// turnOps release the turn, or are not allowed in a transaction.
	turnOps = []weighted{{Await, 5}, {Sleep, 6}, {Sync, 2}, {WaitReply, 5}, {Drain, 3}, {Stream, 5}}
	endOps  = []weighted{{Fail, 3}, {Panic, 1}}
)

// Draw draws a program.
func Draw(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: drawBody(r, 1+r.IntN(4), 0, true)}
}

// maxDepth bounds the nesting of bodies.
const maxDepth = 2

// drawBody draws n instructions at a depth; with free ones that release the turn, too.
func drawBody(r *rand.Rand, n, depth int, free bool) []Instr {
	var list []Instr
	for range n {
		from := rowOps
		switch k := r.IntN(100); {
		case k < 35 && free:
			from = turnOps
		case k < 45 && depth > 0, k < 37:
			from = endOps
		}
		list = append(list, drawInstr(r, randtest.Pick(r, from, func(w weighted) int { return w.weight }).op, depth))
	}
	return list
}

func drawInstr(r *rand.Rand, op Op, depth int) Instr {
	in := Instr{Op: op, K: r.IntN(6), N: r.IntN(120)}
	switch op {
	case Fail, Panic:
		in.N = 1 + r.IntN(5)
	case Sleep:
		in.N = 10 * r.IntN(500)
	case Send, Put, Edit:
		if depth < maxDepth {
			in.Body = drawBody(r, r.IntN(3), depth+1, true)
		}
	case Transaction:
		if depth == maxDepth {
			return Instr{Op: Reply, K: in.K}
		}
		in.Body = drawBody(r, 1+r.IntN(3), depth+1, false)
	}
	return in
}
