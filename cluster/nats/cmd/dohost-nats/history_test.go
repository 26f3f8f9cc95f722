//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history has the calls of all clients to one tally. A call adds one, or nothing. It is checked in parts, so that a long history needs no more
// memory than a short one. A part ends with a read while no client waits for an answer.
type history struct {
	mu        sync.Mutex
	ops       []porcupine.Operation // of this part
	start     counted               // of this part
	loose     int                   // earlier additions with an unknown outcome, without those that have had their effect
	additions int                   // acknowledged ones, of all parts
}

// input is the input of a call: the number that it adds and, if its outcome is unknown, its rank among such calls.
type input struct{ n, rank int }

// counted is the state of the checker: the total, and how many additions with an unknown outcome have had their effect.
type counted struct{ total, unknown int }

// unknownTotal is the output of a call with an unknown outcome.
const unknownTotal = -1

// add adds a call. Reads with an unknown outcome have no effect.
func (h *history) add(client, n int, call, end time.Duration, total int) {
	if total == unknownTotal && n == 0 {
		return
	}
	o := porcupine.Operation{ClientId: client, Input: input{n: n}, Call: int64(call), Output: total, Return: int64(end)}
	if total == unknownTotal {
		o.Return = math.MaxInt64 // it may have its effect at any time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// model returns a counter for the checker. Each addition adds one, so no addition with an unknown outcome has led to a total that an answer
// has. Such additions take effect in the order of their ranks, since swapping two of them changes nothing.
func (h *history) model(answered map[int]bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return h.start },
		Step: func(state, in, output any) (bool, any) {
			s, add, got := state.(counted), in.(input), output.(int)
			s.total += add.n
			if got != unknownTotal {
				return got == s.total, s
			}
			s.unknown++
			return s.unknown == add.rank && !answered[s.total], s
		},
	}
}

// verdict checks a part. last is the answer to the read at its end. Then the next part begins.
func (h *history) verdict(last int) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var ops []porcupine.Operation
	for range h.loose {
		ops = append(ops, porcupine.Operation{Input: input{n: 1}, Output: unknownTotal, Return: math.MaxInt64})
	}
	ops = append(ops, h.ops...)
	answered, acknowledged, unknown := map[int]bool{}, 0, 0
	for i, o := range ops {
		in := o.Input.(input)
		switch {
		case o.Output == unknownTotal:
			unknown++
			ops[i].Input = input{n: 1, rank: unknown}
		case in.n == 1:
			acknowledged++
			if answered[o.Output.(int)] {
				err = fmt.Errorf("two additions have led to the total %d", o.Output)
			}
			answered[o.Output.(int)] = true
		}
	}
	effects := last - h.start.total - acknowledged // of additions with an unknown outcome
	switch {
	case err != nil:
	case effects < 0:
		err = fmt.Errorf("the total was %d, and is %d after %d acknowledged additions: %d are lost", h.start.total, last, acknowledged, -effects)
	case effects > unknown:
		err = fmt.Errorf("the total was %d, and is %d after %d acknowledged additions, and %d with an unknown outcome", h.start.total, last, acknowledged, unknown)
	default:
		switch porcupine.CheckOperationsTimeout(h.model(answered), ops, time.Minute) {
		case porcupine.Illegal:
			err = fmt.Errorf("no order of these %d calls, one after another, explains all answers:%s", len(ops), listed(ops))
		case porcupine.Unknown:
			err = fmt.Errorf("no verdict on %d calls", len(ops))
		}
	}
	h.ops, h.start, h.loose, h.additions = nil, counted{total: last}, unknown-effects, h.additions+acknowledged
	return err
}

// listed returns a line for each call.
func listed(ops []porcupine.Operation) string {
	var lines strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&lines, "\n\t%v to %v: adds %d, total %v", time.Duration(o.Call), time.Duration(o.Return), o.Input.(input).n, o.Output)
	}
	return lines.String()
}

// gap is the longest time between two answers to additions of this part.
func (h *history) gap() (longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ends []int64
	for _, o := range h.ops {
		if o.Output != unknownTotal && o.Input.(input).n == 1 {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	for i := 1; i < len(ends); i++ {
		longest = max(longest, time.Duration(ends[i]-ends[i-1]))
	}
	return longest
}

// TestHistoryFindsAViolation has histories with one fault each.
func TestHistoryFindsAViolation(t *testing.T) {
	type call struct{ n, call, end, total int }
	tests := map[string]struct {
		calls   []call
		last    int
		correct bool
	}{
		"correct":                              {[]call{{1, 1, 2, 1}, {1, 1, 3, 2}, {0, 2, 4, 2}}, 2, true},
		"unknown outcome with an effect":       {[]call{{1, 1, 2, unknownTotal}, {1, 3, 4, 2}}, 2, true},
		"unknown outcome with a late effect":   {[]call{{1, 1, 2, unknownTotal}, {0, 3, 4, 0}, {1, 5, 6, 2}}, 2, true},
		"unknown outcome without an effect":    {[]call{{1, 1, 2, unknownTotal}, {1, 3, 4, 1}}, 1, true},
		"unknown outcome with two effects":     {[]call{{1, 1, 2, unknownTotal}, {1, 3, 4, 3}}, 3, false},
		"unknown outcome with an early effect": {[]call{{1, 1, 2, 2}, {1, 3, 4, unknownTotal}}, 2, false},
		"lost addition":                        {[]call{{1, 1, 2, 1}, {1, 3, 4, 2}}, 1, false},
		"doubled addition":                     {[]call{{1, 1, 2, 1}}, 2, false},
		"two additions with one total":         {[]call{{1, 1, 2, 1}, {1, 3, 4, 1}, {1, 5, 6, unknownTotal}}, 2, false},
		"stale read":                           {[]call{{1, 1, 2, 1}, {0, 3, 4, 0}}, 1, false},
		"read of a later total":                {[]call{{0, 1, 2, 1}, {1, 3, 4, 1}}, 1, false},
	}
	for name, test := range tests {
		var h history
		for i, c := range test.calls {
			h.add(i, c.n, time.Duration(c.call), time.Duration(c.end), c.total)
		}
		if err := h.verdict(test.last); (err == nil) != test.correct {
			t.Errorf("%s: %v", name, err)
		}
	}
	var h history
	h.add(1, 1, 1, 2, unknownTotal)
	for part, last := range []int{0, 1} { // the effect is in the second part
		if err := h.verdict(last); err != nil {
			t.Errorf("part %d: %v", part, err)
		}
	}
	if err := h.verdict(2); err == nil {
		t.Error("a second effect was not found")
	}
}
