package chat

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// reconcile brings what a client sends together with what is stored: the result is what is to be stored
// of it, in the client's order. A client may know less than is stored, since its tab slept, and knows an
// assistant's message by an id of its own if it was there when that streamed.
//
//   - A call of a tool that is settled in what is stored, or has come further there, stays so: see [toolRank].
//   - An assistant's message gets the id of the stored one that it is: that of the same id, else one with
//     the same texts, else one with a call that it has. Each stored one is taken once, so two that say
//     the same stay two.
//   - Messages of one id become one, where the first of them was.
//
// What it is given stays as it is.
func reconcile(stored, sent []Message) []Message {
	r := newReconciler(stored)
	for _, m := range sent {
		r.taken[m.ID] = true
	}
	for _, m := range sent {
		r.add(m.Clone())
	}
	return r.merged
}

type reconciler struct {
	stored []Message // the assistant's have places in what follows
	ids    map[string]int
	texts  map[string][]int
	calls  map[string]int
	taken  map[string]bool // ids that are no other message's any more
	merged []Message
	at     map[string]int // place in merged
}

func newReconciler(stored []Message) *reconciler {
	r := &reconciler{
		stored: stored, ids: map[string]int{}, texts: map[string][]int{}, calls: map[string]int{},
		taken: map[string]bool{}, at: map[string]int{},
	}
	for i := range stored {
		m := &stored[i]
		if m.Role != Assistant {
			continue
		}
		r.ids[m.ID] = i
		if texts := textsOf(m); texts != "" {
			r.texts[texts] = append(r.texts[texts], i)
		}
		for _, p := range m.Parts {
			if _, ok := r.calls[p.Text("toolCallId")]; isTool(p) && !ok {
				r.calls[p.Text("toolCallId")] = i
			}
		}
	}
	return r
}

func (r *reconciler) add(m Message) {
	if m.Role == Assistant {
		if old := r.same(&m); old != nil {
			m.ID = old.ID
			r.taken[m.ID] = true
			keepCalls(&m, old)
		}
	}
	if i, ok := r.at[m.ID]; ok {
		keepCalls(&m, &r.merged[i])
		r.merged[i] = m
		return
	}
	r.at[m.ID] = len(r.merged)
	r.merged = append(r.merged, m)
}

// same is the stored message that an assistant's is, or nil.
func (r *reconciler) same(m *Message) *Message {
	if i, ok := r.ids[m.ID]; ok {
		return &r.stored[i]
	}
	for _, i := range r.texts[textsOf(m)] {
		if !r.taken[r.stored[i].ID] {
			return &r.stored[i]
		}
	}
	for _, p := range m.Parts {
		if i, ok := r.calls[p.Text("toolCallId")]; ok && isTool(p) {
			return &r.stored[i]
		}
	}
	return nil
}

// textsOf is by what a message can be known that has another id. It is empty if there is no text.
func textsOf(m *Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		if s := strings.TrimSpace(p.Text("text")); p.Type() == "text" && s != "" {
			b.WriteString(s + "\x00")
		}
	}
	return b.String()
}

// keepCalls has calls of m be as far as they are in old.
func keepCalls(m, old *Message) {
	for i, p := range m.Parts {
		if !isTool(p) {
			continue
		}
		if was, ok := old.call(p.Text("toolCallId")); ok && (settled(was) || toolRank(was) > toolRank(p)) {
			m.Parts[i] = was.clone()
		}
	}
}

// differing are the messages that a client sends and that are not stored as they are, and what is stored
// that they may be. Clients send all that they know, and most of that is what they were sent: comparing it
// is cheaper than bringing it together with itself. But with a message of an assistant's that has another
// id all counts: it may be any that no other is; and with one that comes twice, since the last counts.
func differing(rows map[string]messageRow, sent []Message) (stored, changed []Message, err error) {
	own, seen := false, map[string]bool{}
	for _, m := range sent {
		row, ok := rows[m.ID]
		own = own || seen[m.ID]
		seen[m.ID] = true
		if !ok || string(row.JSON) != string(mustEncode(m)) {
			changed = append(changed, m)
			own = own || !ok && m.Role == Assistant
		}
	}
	if own {
		changed = sent
		for _, id := range slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
			return cmp.Compare(rows[a].Place, rows[b].Place)
		}) {
			row := rows[id]
			m, err := row.message()
			if err != nil {
				return nil, nil, err
			}
			stored = append(stored, m)
		}
		return stored, changed, nil
	}
	for _, c := range changed {
		if row, ok := rows[c.ID]; ok {
			m, err := row.message()
			if err != nil {
				return nil, nil, err
			}
			stored = append(stored, m)
		}
	}
	return stored, changed, nil
}

// deletes says which stored messages a request of a client removes: those that it does not have, if it
// knows all that it has. A list with a message that nobody has stored is one that may not know of others,
// and removes nothing; nor does an empty one.
func deletes(rows map[string]messageRow, sent []Message) (ids []string) {
	if len(sent) == 0 {
		return nil
	}
	has := map[string]bool{}
	for _, m := range sent {
		if has[m.ID] = true; rows[m.ID].Place == 0 {
			return nil
		}
	}
	for id := range rows {
		if !has[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // the order of the map would have chaos strike elsewhere in every run
	return ids
}
