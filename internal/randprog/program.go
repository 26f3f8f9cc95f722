package randprog

import (
	"fmt"
	"math/rand/v2"

	"github.com/dohost/dohost/internal/randtest"
)

// Op is the kind of an instruction.
type Op string

// The instructions. K selects a key, a row or an object, N is a number. Those with a Body
// execute it in a transaction, a section, or an event of its own.
const (
	Put         Op = "Put"         // key K = N
	PutNoWait   Op = "PutNoWait"   // likewise
	PutMany     Op = "PutMany"     // keys K to K+2 = N
	PutTooLong  Op = "PutTooLong"  // PutMany of key K and of one that is too long
	Add         Op = "Add"         // key K += N
	Delete      Op = "Delete"      // key K
	DeleteMany  Op = "DeleteMany"  // keys K to K+2
	DeleteAll   Op = "DeleteAll"   //
	Get         Op = "Get"         // key K
	GetMany     Op = "GetMany"     // keys K to K+2
	List        Op = "List"        // keys, by options that N encodes
	Insert      Op = "Insert"      // row K with the value N
	PutRow      Op = "PutRow"      // likewise
	UpdateRow   Op = "UpdateRow"   // row K += N
	UpdateIf    Op = "UpdateIf"    // row K += 1, if its version is N
	DeleteRow   Op = "DeleteRow"   // row K
	DeleteRowIf Op = "DeleteRowIf" // row K, if its version is N
	GetRow      Op = "GetRow"      // row K
	ListRows    Op = "ListRows"    // rows, by options that N encodes
	CountRows   Op = "CountRows"   // likewise
	ReadFeed    Op = "ReadFeed"    // all entries
	SetAlarm    Op = "SetAlarm"    // in N seconds
	DeleteAlarm Op = "DeleteAlarm" //
	GetAlarm    Op = "GetAlarm"    //
	Emit        Op = "Emit"        //
	Sync        Op = "Sync"        //
	Durable     Op = "Durable"     // AwaitDurable
	Await       Op = "Await"       // a function that does nothing
	Sleep       Op = "Sleep"       // N milliseconds
	Transaction Op = "Transaction" // Body; rolled back if N is odd
	Exclusive   Op = "Exclusive"   // Body
	HoldTurn    Op = "HoldTurn"    // Body, in the function of an Await
	Call        Op = "Call"        // Body, in object K, if K is greater than the number of this object
	Copy        Op = "Copy"        // exports the object, and imports it under another name
	Go          Op = "Go"          // Body, in a task
	Flush       Op = "Flush"       // a piece of the response, if the event is an HTTP request
	Sockets     Op = "Sockets"     // with the tag K
	SendFrame   Op = "SendFrame"   // to the event's socket, or, if N is divisible by 3, to one with the tag K
	Broadcast   Op = "Broadcast"   // a frame to the sockets with the tag K
	Attach      Op = "Attach"      // N, to a socket that is chosen as by SendFrame
	CloseSocket Op = "CloseSocket" // with the code 4000+N, likewise
	Accept      Op = "Accept"      // the request for a socket, with tags and an attachment that K and N encode
	Fail        Op = "Fail"        // the event returns an error
	Panic       Op = "Panic"       //
	Goexit      Op = "Goexit"      //
)

// Instr is an instruction.
type Instr struct {
	Op   Op
	K, N int     `json:",omitempty"`
	Body []Instr `json:",omitempty"`
}

// Program is the work of one event.
type Program = randtest.Program[Instr]

// GoString returns the name of the constant.
func (o Op) GoString() string { return "randprog." + string(o) }

func nameOf(p Program) string { return fmt.Sprintf("program %d", p.ID) }

const (
	numKeys = 4 // few, so that programs meet at them
	numRows = 3
	// Objects is the number of objects.
	Objects = 2
	// maxDepth bounds the nesting of bodies.
	maxDepth = 3
)

// weighted is an instruction with its weight in a draw.
type weighted struct {
	op     Op
	weight int
}

var (
	storageOps = []weighted{
		{Put, 6}, {PutNoWait, 4}, {PutMany, 2}, {PutTooLong, 1}, {Add, 4}, {Delete, 3}, {DeleteMany, 1}, {Get, 3}, {GetMany, 1},
		{List, 3}, {Insert, 3}, {PutRow, 3}, {UpdateRow, 3}, {UpdateIf, 2}, {DeleteRow, 2}, {DeleteRowIf, 1}, {GetRow, 2},
		{ListRows, 3}, {CountRows, 1}, {ReadFeed, 2}, {SetAlarm, 3}, {DeleteAlarm, 1}, {GetAlarm, 1}, {Emit, 1}, {Go, 1},
		{Transaction, 4}, {Sockets, 1}, {Broadcast, 2},
	}
	socketOps = []weighted{{Sockets, 3}, {SendFrame, 4}, {Broadcast, 4}, {Attach, 2}, {CloseSocket, 1}}
	// turnOps release the turn, or are not allowed in a transaction.
	turnOps = []weighted{
		{Await, 4}, {Flush, 4}, {Sleep, 2}, {Sync, 4}, {Durable, 2}, {DeleteAll, 1}, {Exclusive, 3}, {HoldTurn, 1}, {Call, 2},
		{Copy, 1},
	}
	endOps = []weighted{{Fail, 3}, {Panic, 2}, {Goexit, 1}}
)

// Draw draws a program.
func Draw(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: drawBody(r, 1+r.IntN(6), 0, true)}
}

// drawWithSockets draws a program with many instructions for sockets.
func drawWithSockets(r *rand.Rand, id int) Program {
	return Program{ID: id, Code: mixSockets(r, drawBody(r, 1+r.IntN(4), 0, true))}
}

// mixSockets adds instructions for sockets to a list.
func mixSockets(r *rand.Rand, list []Instr) (mixed []Instr) {
	for _, in := range list {
		for r.IntN(2) == 0 {
			mixed = append(mixed, Instr{Op: pick(r, socketOps), K: r.IntN(numKeys), N: r.IntN(100)})
		}
		in.Body = mixSockets(r, in.Body)
		mixed = append(mixed, in)
	}
	return mixed
}

// drawBody draws n instructions at a depth; with free ones that release the turn, too.
func drawBody(r *rand.Rand, n, depth int, free bool) []Instr {
	var list []Instr
	for range n {
		from := storageOps
		switch k := r.IntN(100); {
		case k < 25 && free:
			from = turnOps
		case k < 28:
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
	in := Instr{Op: op, K: r.IntN(numKeys), N: r.IntN(100)}
	switch op {
	case Insert, PutRow, UpdateRow, DeleteRow, GetRow:
		in.K = r.IntN(numRows)
	case UpdateIf, DeleteRowIf:
		in.K, in.N = r.IntN(numRows), 1+r.IntN(3)
	case SetAlarm:
		in.N = r.IntN(4)
	case Transaction, Exclusive, HoldTurn, Call, Go:
		if depth == maxDepth {
			return Instr{Op: Get, K: in.K}
		}
		if in.K = 1; op != Call {
			in.K = 0
		}
		// The section of HoldTurn is one batch, and a task or a called object can do everything.
		in.Body = drawBody(r, 1+r.IntN(3), depth+1, op != Transaction && op != HoldTurn && (free || op == Go))
	}
	return in
}
