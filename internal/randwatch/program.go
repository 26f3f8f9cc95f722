package randwatch

import (
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions. K selects a note or a generation, N is a number. Those with a Body execute it in a transaction.
const (
	Insert      Op = "Insert"      // note K, with fields that N selects
	Put         Op = "Put"         // notes from K on, likewise
	Update      Op = "Update"      // a field of note K, which N selects
	Delete      Op = "Delete"      // note K
	DeleteAll   Op = "DeleteAll"   // and a Put of note K
	Stream      Op = "Stream"      // chunks of generation K, with words and an end that N selects
	Write       Op = "Write"       // chunks of generation K in a transaction, which is rolled back if N is odd, and one after it
	TwoWriters  Op = "TwoWriters"  // of generation K
	Last        Op = "Last"        // of generation K
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
func (o Op) GoString() string { return "randwatch." + string(o) }

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
	rowOps = []weighted{{Insert, 4}, {Put, 8}, {Update, 10}, {Delete, 5}, {Write, 3}, {TwoWriters, 2}, {Last, 1}, {Transaction, 3}}
	// turnOps release the turn, or are not allowed in a transaction.
	turnOps = []weighted{{Await, 4}, {Sleep, 5}, {Sync, 2}, {Stream, 6}, {DeleteAll, 1}}
	endOps  = []weighted{{Fail, 3}, {Panic, 1}}
)

// Draw draws a program.
func Draw(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: drawBody(r, 1+r.IntN(6), 0)}
}

// drawBody draws n instructions at a depth: those of a transaction keep the turn.
func drawBody(r *rand.Rand, n, depth int) []Instr {
	var list []Instr
	for range n {
		from := rowOps
		switch k := r.IntN(100); {
		case k < 35 && depth == 0:
			from = turnOps
		case k < 38:
			from = endOps
		}
		in := Instr{Op: randtest.Pick(r, from, func(w weighted) int { return w.weight }).op, K: r.IntN(8), N: r.IntN(200)}
		switch in.Op {
		case Fail, Panic:
			in.N = 1 + r.IntN(3)
		case Sleep:
			in.N = 10 * r.IntN(300)
		case Transaction:
			if depth > 0 {
				in = Instr{Op: Update, K: in.K, N: in.N}
				break
			}
			in.Body = drawBody(r, 1+r.IntN(4), depth+1)
		}
		list = append(list, in)
	}
	return list
}
