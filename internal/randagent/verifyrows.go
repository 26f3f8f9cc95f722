package randagent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// onStart records which calls for rows were interrupted, before any of them begins again.
func (a *machine) onStart(ctx context.Context) error {
	_, err := a.listRows(ctx)
	return err
}

// listRows returns the rows of calls. The first list of an incarnation has the calls that earlier ones have begun.
func (a *machine) listRows(ctx context.Context) ([]agent.RowsInfo, error) {
	list, err := a.Rows().List(ctx, &agent.RowsQuery{Limit: 100})
	if err != nil || a.interrupted != nil {
		return list, err
	}
	a.interrupted = map[string]int{}
	for _, info := range list {
		if info.State == agent.RowsRunning {
			a.interrupted[info.ID] = info.Attempt
		}
	}
	return list, nil
}

// verifyRows compares the calls for rows with the model. Calls that have begun, and interruptions, are made in the model.
func (a *machine) verifyRows(ctx context.Context, m *model) error {
	list, err := a.listRows(ctx)
	if err != nil {
		return err
	}
	for f := range families {
		a.verifyBegun(m, f, list)
	}
	running := map[family]int{}
	for _, info := range list {
		if w := m.workOf(info.ID); w != nil && a.compareRows(m, w, info) {
			running[w.Family]++
		}
	}
	for f, n := range running {
		if n > families[f].Parallel {
			a.w.Faultf("%d calls of %s run at the same time", n, f)
		}
	}
	for _, w := range slices.Clone(m.Work) {
		listed := slices.ContainsFunc(list, func(i agent.RowsInfo) bool { return i.ID == w.ID })
		switch {
		case listed && len(w.Keys) == 0:
			a.w.Faultf("List has %v, which has ended", w)
		case !listed && len(w.Keys) > 0:
			a.w.Faultf("List does not have %v", w)
		case len(w.Keys) == 0 && a.runs[w.ID] == nil:
			m.removeWork(w.ID)
		}
	}
	m.Seen = a.incarnation
	return nil
}

// verifyBegun makes calls in the model that have begun since its last comparison. They have the first rows that are due.
func (a *machine) verifyBegun(m *model, f family, list []agent.RowsInfo) {
	due := m.dueRows(f)
	ordered := !slices.ContainsFunc(due, func(key string) bool { return m.leftCall(f, key) })
	var begun []*rowWork
	for _, info := range list {
		if m.workOf(info.ID) == nil && strings.Contains(info.Index, string(f)) {
			begun = append(begun, &rowWork{ID: info.ID, Family: f, Keys: slices.Clone(info.Keys), State: agent.RowsWaiting})
		}
	}
	slices.SortFunc(begun, func(x, y *rowWork) int { return slices.Index(due, x.Keys[0]) - slices.Index(due, y.Keys[0]) })
	want := m.divide(f, due)
	for i, w := range begun {
		for _, key := range w.Keys {
			if run := a.runOver(f, key); run != nil && run.called {
				a.w.Faultf("%v begin during the call %s, which has begun with %q", w, run.id, key)
			}
			if !slices.Contains(due, key) {
				a.w.Faultf("%v begin, and %q is not due", w, key)
			}
		}
		if ordered && (i >= len(want) || !slices.Equal(w.Keys, want[i])) {
			a.w.Faultf("%v begin, and the due rows are %q", w, want)
		}
	}
	for _, w := range begun {
		a.forgetCalls(m, w)
		m.Work = append(m.Work, w)
	}
}

// leftCall reports whether a row may have left a call that runs. Such a row is not due before the end of the call.
func (m *model) leftCall(f family, key string) bool {
	return slices.ContainsFunc(m.Work, func(w *rowWork) bool { return w.Family == f && slices.Contains(w.Begun, key) })
}

// forgetCalls forgets calls that have ended without a call of the method, since all of their rows had left the index. The
// begin of another call shows that.
func (a *machine) forgetCalls(m *model, begun *rowWork) {
	for _, w := range slices.Clone(m.Work) {
		run := a.runs[w.ID]
		if run == nil || run.called || w.Family != begun.Family || len(w.Keys) > 0 {
			continue
		}
		if families[w.Family].Parallel == 1 || slices.ContainsFunc(begun.Keys, func(k string) bool { return slices.Contains(run.keys, k) }) {
			delete(a.runs, w.ID)
			m.removeWork(w.ID)
		}
	}
}

// compareRows compares the rows of a call with the model. It reports whether a call runs in this incarnation.
func (a *machine) compareRows(m *model, w *rowWork, info agent.RowsInfo) (runs bool) {
	if old, ok := a.interrupted[w.ID]; info.State == agent.RowsRunning {
		runs = a.runs[w.ID] != nil || !ok || info.Attempt > old
	} else {
		delete(a.interrupted, w.ID)
	}
	if kept := m.sameGroup(w); runs && !slices.Equal(info.Keys, w.Keys) && slices.Equal(info.Keys, kept) {
		w.Keys = kept // the call begins without those that have another group now
		if run := a.runs[w.ID]; run != nil {
			run.keys = slices.Clone(kept)
		}
	}
	if !slices.Equal(info.Keys, w.Keys) {
		a.w.Faultf("List has %+v, want %v", info, w)
	}
	a.charge(m, w, info)
	if !runs {
		return false
	}
	if a.runs[w.ID] == nil {
		run := &rowRun{
			id: w.ID, family: w.Family, keys: slices.Clone(w.Keys), charges: w.Charges, changed: map[string]bool{}, renewed: map[string]bool{},
		}
		if _, ok := a.interrupted[w.ID]; ok && w.Stalls > 1 {
			run.suspect = true
			for _, other := range a.runs {
				if second := m.workOf(other.id); other.suspect && second != nil && (len(second.Keys) > 0 || other.called) {
					a.w.Faultf("%v and %v were interrupted repeatedly, and run at the same time", w, second)
				}
			}
		}
		a.runs[w.ID] = run
		delete(a.interrupted, w.ID)
	}
	w.Run, w.Begun = a.incarnation, a.runs[w.ID].keys
	return true
}

// sameGroup returns the rows that have the group of the first one.
func (m *model) sameGroup(w *rowWork) []string {
	if w.Family != grouped || len(w.Keys) == 0 {
		return w.Keys
	}
	of := group(m.Rows[w.Keys[0]].Number)
	return slices.DeleteFunc(slices.Clone(w.Keys), func(key string) bool { return group(m.Rows[key].Number) != of })
}

// charge compares the state and the attempts of rows with the model. An attempt that the model does not know is an
// interruption, and there is at most one for each incarnation that may have begun a call.
func (a *machine) charge(m *model, w *rowWork, info agent.RowsInfo) {
	most := a.incarnation - m.Seen
	if w.State == agent.RowsRunning {
		most = a.incarnation - w.Run
	}
	if w.State == agent.RowsParked {
		most = 0
	}
	stalls := info.Attempt - w.Attempt
	if stalls < 0 || stalls > most {
		a.w.Faultf("List has %+v, want %v with up to %d interruptions", info, w, most)
		return
	}
	before := w.State
	if before != agent.RowsRunning {
		w.Run = m.Seen
	}
	w.Attempt += stalls
	w.Stalls += stalls
	w.Run += stalls
	w.State = info.State
	exhausted := w.Failures+w.Stalls >= families[w.Family].Retry.MaxAttempts
	ok := false
	switch info.State {
	case agent.RowsWaiting:
		next := info.Next.UnixMilli()
		if info.Next.IsZero() {
			next = 0
		}
		ok = before == agent.RowsWaiting && stalls == 0 && next >= w.Next[0] && next <= w.Next[1]
	case agent.RowsRunning:
		ok = before != agent.RowsParked && !exhausted && time.Now().UnixMilli() >= w.Next[0]
	case agent.RowsParked:
		ok = exhausted && (before == agent.RowsParked || stalls > 0)
	}
	if !ok {
		a.w.Faultf("List has %+v, want %v, before %s", info, w, before)
	}
}

// checkRows checks that no work on rows is pending when the agent is at rest: rows in the index are parked.
func (a *machine) checkRows(ctx context.Context, m *model) error {
	for _, w := range m.Work {
		if w.State != agent.RowsParked && (len(w.Keys) > 0 || a.runs[w.ID].called) {
			a.w.Faultf("at rest there is the work %v", w)
		}
	}
	for f := range families {
		if due := m.dueRows(f); len(due) > 0 {
			a.w.Faultf("at rest the %s rows %q are due", f, due)
		}
		rows, err := entries.List(ctx, a.Storage(), &dohost.Query[entry]{Index: byFamily, Prefix: dohost.KeyOf(f)})
		if err != nil {
			return err
		}
		for _, e := range rows {
			if r := m.Rows[e.Key]; r == nil || r.Family != f || r.Number != e.Value.Number {
				a.w.Faultf("at rest the index of %s has %+v, want %+v", f, e, r)
			}
		}
	}
	return nil
}
