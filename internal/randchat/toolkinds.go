package randchat

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// kind is a tool of a model.
type kind struct {
	name    string
	client  bool // a client runs it
	policy  ledger.Policy
	approve bool
	selects bool          // only calls with Asks need an approval
	within  time.Duration // of the approval
	timeout time.Duration
	// external makes another party complete its calls.
	external *chat.External
	weight   int
}

// approvalTime and toolTime are the limits of the tools that have some.
const (
	approvalTime = time.Minute
	toolTime     = 2 * time.Second
)

var kinds = []kind{
	{name: "server", weight: 4},
	{name: "client", client: true, weight: 4},
	{name: "approval", approve: true, weight: 4},
	{name: "expiring", approve: true, within: approvalTime, timeout: toolTime, weight: 4},
	{name: "repeat", policy: ledger.PolicyIdempotent, timeout: toolTime, weight: 4},
	{name: "find", policy: ledger.PolicyReconcile, timeout: toolTime, weight: 4},
	{name: "approvedrepeat", policy: ledger.PolicyIdempotent, approve: true, selects: true, within: approvalTime, timeout: toolTime, weight: 3},
	{name: "approvedfind", policy: ledger.PolicyReconcile, approve: true, timeout: toolTime, weight: 3},
	{name: "external", external: &chat.External{}, weight: 6},
	{name: "timedexternal", external: &chat.External{Within: externalTime}, policy: ledger.PolicyIdempotent, weight: 5},
	{name: "asyncexternal", external: &chat.External{Async: true, Within: 2 * externalTime}, policy: ledger.PolicyIdempotent, weight: 4},
	{name: "approvedexternal", external: &chat.External{}, approve: true, weight: 3},
	{name: "approvedclient", client: true, approve: true, within: approvalTime, weight: 2},
}

// kindOf returns the tool of a call.
func kindOf(call string) *kind {
	if isBudgetCall(call) || call == budgetTool {
		return &budgetKind
	}
	name := call[strings.LastIndex(call, "-")+1:]
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return &kind{name: name}
	}
	return &kinds[i]
}

// Use is a call of a tool by a model. Equal uses have equal inputs.
type Use struct {
	Tool string
	Do   Effect `json:"do"`
	Wait int    `json:"wait"` // milliseconds
	Late bool   `json:"late"` // the wait is after the effect
	Asks bool   `json:"asks"` // it needs an approval, if the tool selects the calls that do
	Find string `json:"find"` // the answer of Find: the truth if it is empty
}

// Effect is the behaviour of a run of a tool.
type Effect string

// The behaviours.
const (
	Perform Effect = "Perform" // one effect, during an Await
	InTurn  Effect = "InTurn"  // one effect, without an Await
	Refuse  Effect = "Refuse"  // an error that proves that there was no effect
	Reject  Effect = "Reject"  // an error without an effect, and without a proof
	Lose    Effect = "Lose"    // an error after the effect
	Break   Effect = "Break"   // a panic after the effect, in the first run
	Deaf    Effect = "Deaf"    // the effect, also after the end of the context
	Recant  Effect = "Recant"  // the effect in the first run, and Refuse in later ones
)

// GoString returns the name of the constant.
func (e Effect) GoString() string { return "randchat." + string(e) }

// The answers of Find that are not the truth.
const (
	findUnknown = "unknown"
	findFails   = "error"
)

var (
	together = []weighted[int]{{1, 3}, {2, 3}, {3, 1}}
	effects  = []weighted[Effect]{{Perform, 8}, {InTurn, 2}, {Refuse, 2}, {Reject, 1}, {Lose, 2}, {Break, 1}, {Deaf, 1}, {Recant, 1}}
	waits    = []weighted[int]{{0, 4}, {10, 2}, {1000, 4}, {3000, 3}, {8000, 1}}
	finds    = []weighted[string]{{"", 6}, {findUnknown, 1}, {findFails, 1}}
)

func drawUse(r *rand.Rand) Use {
	k := pick(r, kindWeights())
	return Use{Tool: k, Do: pick(r, effects), Wait: pick(r, waits), Late: r.IntN(2) == 0, Asks: r.IntN(2) == 0, Find: pick(r, finds)}
}

func kindWeights() (list []weighted[string]) {
	for _, k := range kinds {
		list = append(list, weighted[string]{k.name, k.weight})
	}
	return list
}

// input returns the input of the call.
func (u Use) input() string {
	raw, err := json.Marshal(u)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// asks reports whether the call needs an approval.
func (u Use) asks() bool {
	k := kindOf(u.Tool)
	return k.approve && (!k.selects || u.Asks)
}

// overdue reports whether a run takes longer than the time limit of its tool.
func (u Use) overdue() bool {
	k := kindOf(u.Tool)
	return k.timeout > 0 && time.Duration(u.Wait)*time.Millisecond > k.timeout
}

// certain reports whether the result of an uninterrupted run leaves no doubt about the effect.
func (u Use) certain() bool {
	uncertain := u.overdue() || (u.Do == Reject || u.Do == Lose) && kindOf(u.Tool).policy != ledger.PolicyIdempotent
	return !uncertain && u.Do != Break
}

// succeeds reports whether an uninterrupted run returns a result.
func (u Use) succeeds() bool {
	return !u.overdue() && u.Do != Refuse && u.Do != Reject && u.Do != Lose && u.Do != Break
}

// callID returns the id of call j before word i of the reply to a request. It ends in the name of the tool.
func callID(request string, i, j int, u Use) string {
	return fmt.Sprintf("%s-%d-%d-%s", request, i, j, u.Tool)
}

// eachUse calls f for each call of a plan, in order.
func (p *Plan) eachUse(request string, f func(id string, u Use)) {
	for i, w := range p.Words {
		for j, u := range w.Calls {
			f(callID(request, i, j, u), u)
		}
	}
}
