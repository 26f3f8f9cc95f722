package randagent

import (
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions. K selects one of the fibers, schedules, items, dead letters or rows in the model, N is a number. Those
// with a Body execute it in a transaction, in a fiber, in a callback or in a call for a row.
const (
	Start          Op = "Start"          // a fiber: with key K, unless it is zero; of a kind that N selects
	Run            Op = "Run"            // a fiber of RunFiber
	Cancel         Op = "Cancel"         // fiber K
	Restart        Op = "Restart"        // fiber K
	Remove         Op = "Remove"         // fiber K, if it has ended
	Wait           Op = "Wait"           // for fiber K
	Schedule       Op = "Schedule"       // with a When that K and N select
	ScheduleAgain  Op = "ScheduleAgain"  // schedule K, which exists
	CancelSchedule Op = "CancelSchedule" // schedule K
	Enqueue        Op = "Enqueue"        // with id K, unless it is zero
	CancelItem     Op = "CancelItem"     // item K
	RetryDead      Op = "RetryDead"      // dead letter K
	DeleteDead     Op = "DeleteDead"     // dead letter K
	AddSub         Op = "AddSub"         // sub-agent K
	PutSub         Op = "PutSub"         // a value in sub-agent K, which is added
	DestroySub     Op = "DestroySub"     // sub-agent K, which is added, destroys itself
	DeleteSub      Op = "DeleteSub"      // sub-agent K
	PutRow         Op = "PutRow"         // rows from K on, of a family and with an end that N selects
	RemoveRow      Op = "RemoveRow"      // row K + N
	RetryRows      Op = "RetryRows"      // the rows of call K
	SetState       Op = "SetState"       // to N, which Validate may refuse
	Await          Op = "Await"          // a function that does nothing
	Sleep          Op = "Sleep"          // N milliseconds
	Sync           Op = "Sync"           //
	Transaction    Op = "Transaction"    // Body; rolled back if N is odd
	Fail           Op = "Fail"           // the first N times
	Panic          Op = "Panic"          // the first N times
)

// Instr is an instruction.
type Instr struct {
	Op   Op
	K, N int     `json:",omitempty"`
	Save Saving  `json:",omitempty"` // after the instruction, in a fiber
	Body []Instr `json:",omitempty"`
}

// Saving is a way to save a checkpoint.
type Saving int

// The ways to save a checkpoint.
const (
	SaveSet   Saving = iota // SetCheckpoint
	SaveWait                // SaveCheckpoint
	SaveAwait               // SaveCheckpoint inside an Await
	SaveNone                // not after this instruction
)

// GoString returns the name of the constant.
func (s Saving) GoString() string {
	return "randagent." + [...]string{"SaveSet", "SaveWait", "SaveAwait", "SaveNone"}[s]
}

// GoString returns the name of the constant.
func (o Op) GoString() string { return "randagent." + string(o) }

// control is for [randtest.Execute].
func (in Instr) control() (kind randtest.Control, n int, body []Instr) {
	return randtest.Control(in.Op), in.N, in.Body
}

// Program is the work of one call.
type Program = randtest.Program[Instr]

// maxDepth bounds the nesting of bodies.
const maxDepth = 2

// weighted is an instruction with its weight in a draw.
type weighted struct {
	op     Op
	weight int
}

var (
	rowOps = []weighted{
		{Start, 10}, {Cancel, 5}, {Restart, 4}, {Remove, 2}, {Schedule, 6}, {ScheduleAgain, 1}, {CancelSchedule, 3},
		{Enqueue, 7}, {CancelItem, 2}, {RetryDead, 3}, {DeleteDead, 1}, {SetState, 3}, {Transaction, 3},
		{AddSub, 2}, {PutRow, 6}, {RemoveRow, 2}, {RetryRows, 1},
	}
	// turnOps release the turn, or are not allowed in a transaction.
	turnOps = []weighted{{Await, 6}, {Sleep, 4}, {Sync, 2}, {Run, 4}, {Wait, 3}, {PutSub, 3}, {DestroySub, 1}, {DeleteSub, 2}}
	endOps  = []weighted{{Fail, 3}, {Panic, 1}}
)

// Draw draws a program.
func Draw(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: drawBody(r, 1+r.IntN(4), 0, true)}
}

// drawBody draws n instructions at a depth; with free ones that release the turn, too.
func drawBody(r *rand.Rand, n, depth int, free bool) []Instr {
	var list []Instr
	for range n {
		from := rowOps
		switch k := r.IntN(100); {
		case k < 35 && free:
			from = turnOps
		case k < 47 && depth > 0, k < 37:
			from = endOps
		}
		list = append(list, drawInstr(r, pick(r, from), depth, free))
	}
	return list
}

func pick(r *rand.Rand, from []weighted) Op {
	return randtest.Pick(r, from, func(w weighted) int { return w.weight }).op
}

func drawInstr(r *rand.Rand, op Op, depth int, free bool) Instr {
	in := Instr{Op: op, K: r.IntN(4), N: r.IntN(100), Save: Saving(r.IntN(4))}
	switch op {
	case Fail, Panic:
		in.N = 1 + r.IntN(5)
	case Sleep:
		in.N = 10 * r.IntN(500)
	case Wait, Run:
		if depth > 0 {
			return Instr{Op: Await, Save: in.Save}
		}
		in.Body = drawBody(r, 1+r.IntN(3), depth+1, true)
	case Start, Schedule, Enqueue, PutRow:
		if depth < maxDepth {
			in.Body = drawBody(r, r.IntN(4), depth+1, true)
		}
	case Transaction:
		if depth == maxDepth {
			return Instr{Op: Cancel, K: in.K, Save: in.Save}
		}
		in.Body = drawBody(r, 1+r.IntN(3), depth+1, false)
	}
	if op == Wait {
		in.Body = nil
	}
	return in
}
