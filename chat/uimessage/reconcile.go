package uimessage

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Reconcile merges the list of a client with the stored messages. It returns the messages to be stored, in the client's
// order. A client may have an old copy, because its tab slept, and uses its own id for an assistant's message that it
// received as a stream.
//
//   - A message has the calls of the stored message, in their order: see [reconciler.withCalls]. A message that is
//     not stored has none, and one that consists of calls alone is left out.
//   - An assistant's message gets the id of a stored one: the message with the same id, else a message with the same texts,
//     else a message with a common call. A stored message matches once by its texts, so two messages with the same texts stay
//     two.
//   - Messages with one id become one, at the place of the first, with the content of the last.
//
// It does not modify its arguments. The work is proportional to their size.
func Reconcile(stored, sent []Message, rules CallRules) []Message {
	r := newReconciler(stored, rules)
	for _, m := range sent {
		r.taken[m.ID] = true
	}
	for _, m := range sent {
		r.add(m)
	}
	var merged []Message
	for _, m := range r.merged {
		if m, ok := r.withCalls(m.Clone()); ok {
			merged = append(merged, m)
		}
	}
	return merged
}

// CallRules decide about the answers in a client's copy of a message.
type CallRules struct {
	// Server reports whether the server runs a call of a message.
	Server func(message, call string) bool
	// InProgress reports whether no answer has an effect on the call.
	InProgress func(message, call string) bool
	// Amend may change an answer before it is applied.
	Amend func(message string, f *ToolAnswer)
}

type reconciler struct {
	rules  CallRules
	stored []Message // the indexes below have the assistant's
	ids    map[string]int
	texts  map[string][]int
	calls  map[string]int
	taken  map[string]bool // ids that no other message may get
	merged []Message
	at     map[string]int // place in merged
}

func newReconciler(stored []Message, rules CallRules) *reconciler {
	r := &reconciler{
		rules: rules, stored: stored, ids: map[string]int{}, texts: map[string][]int{}, calls: map[string]int{},
		taken: map[string]bool{}, at: map[string]int{},
	}
	for i := range stored {
		m := &stored[i]
		if m.Role != RoleAssistant {
			continue
		}
		r.ids[m.ID] = i
		if texts := textsOf(m); texts != "" {
			r.texts[texts] = append(r.texts[texts], i)
		}
		for _, p := range m.Parts {
			if !IsCall(p) {
				continue
			}
			if _, ok := r.calls[p.Text("toolCallId")]; !ok {
				r.calls[p.Text("toolCallId")] = i
			}
		}
	}
	return r
}

func (r *reconciler) add(m Message) {
	if m.Role == RoleAssistant {
		if old := r.match(&m); old != nil {
			m.ID = old.ID
			r.taken[m.ID] = true
		}
	}
	if i, ok := r.at[m.ID]; ok {
		r.merged[i] = m
		return
	}
	r.at[m.ID] = len(r.merged)
	r.merged = append(r.merged, m)
}

// match returns the stored message that an assistant's message matches, or nil.
func (r *reconciler) match(m *Message) *Message {
	if i, ok := r.ids[m.ID]; ok {
		return &r.stored[i]
	}
	texts := textsOf(m)
	for list := r.texts[texts]; len(list) > 0; list = r.texts[texts] {
		rawjson.Step(1)
		if old := &r.stored[list[0]]; !r.taken[old.ID] {
			return old
		}
		r.texts[texts] = list[1:] // an id is never untaken
	}
	for _, p := range m.Parts {
		if !IsCall(p) {
			continue
		}
		if i, ok := r.calls[p.Text("toolCallId")]; ok {
			return &r.stored[i]
		}
	}
	return nil
}

// withCalls replaces the calls in a client's message by those of the stored message: all of them, in their order, each
// where the client has it, or else before the next call that the client has. An answer that a client's copy has
// to a call that waits for it is applied: see [ToolAnswer.EffectOn]. ok is false if nothing is left of the message.
func (r *reconciler) withCalls(m Message) (_ Message, ok bool) {
	var calls []Part
	at := map[string]int{}
	if i, ok := r.ids[m.ID]; ok && m.Role == RoleAssistant {
		for _, p := range r.stored[i].Parts {
			if !IsCall(p) {
				continue
			}
			if _, ok := at[p.Text("toolCallId")]; !ok {
				at[p.Text("toolCallId")] = len(calls)
			}
			calls = append(calls, p.clone())
		}
	}
	parts, next, content := make([]Part, 0, len(m.Parts)), 0, len(m.Parts) == 0
	for _, p := range m.Parts {
		if !IsCall(p) {
			parts = append(parts, p)
			content = content || p.Type() != "step-start"
			continue
		}
		i, ok := at[p.Text("toolCallId")]
		if !ok {
			continue
		}
		if f, ok := answerOf(p); ok && !r.rules.InProgress(m.ID, f.CallID) && f.EffectOn(calls[i], r.rules.Server(m.ID, f.CallID)) == EffectApplied {
			r.rules.Amend(m.ID, &f)
			f.Apply(calls[i])
		}
		if i >= next {
			parts = append(parts, calls[next:i+1]...)
			next = i + 1
		}
	}
	m.Parts = append(parts, calls[next:]...)
	return m, content || len(calls) > 0
}

// CallsOf returns a stored message with the calls of a client's copy, which is a result of Reconcile.
func CallsOf(stored, sent *Message) Message {
	m := stored.Clone()
	for i, p := range m.Parts {
		if now, ok := Call(sent, p.Text("toolCallId")); ok && IsCall(p) {
			m.Parts[i] = now.clone()
		}
	}
	return m
}

// textsOf returns the texts of a message, as a key. It is empty if there is no text.
func textsOf(m *Message) string {
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Type() != "text" {
			continue
		}
		if s := strings.TrimSpace(p.Text("text")); s != "" {
			b.WriteString(s + "\x00")
		}
	}
	return b.String()
}

// ChangedMessages returns the messages of a client's list that differ from the stored ones, and the stored messages
// that they may match. Most messages of a list are unchanged copies, and comparing them is cheaper than merging them.
// But if an assistant's message has an unknown id, it may match any stored message, so everything is returned;
// also if one id occurs twice, since the last counts.
//
// Errors: the errors of [Stored.Message], and one for a message that cannot be encoded.
func ChangedMessages(rows map[string]Stored, sent []Message) (stored, changed []Message, err error) {
	own, seen := false, map[string]bool{}
	for _, m := range sent {
		row, ok := rows[m.ID]
		own = own || seen[m.ID]
		seen[m.ID] = true
		raw, err := rawjson.Encode(m)
		if err != nil {
			return nil, nil, err
		}
		if !ok || string(row.JSON) != string(raw) {
			changed = append(changed, m)
			own = own || !ok && m.Role == RoleAssistant
		}
	}
	if own {
		changed = sent
		for _, id := range slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
			return cmp.Compare(rows[a].Place, rows[b].Place)
		}) {
			row := rows[id]
			m, err := row.Message()
			if err != nil {
				return nil, nil, err
			}
			stored = append(stored, m)
		}
		return stored, changed, nil
	}
	for _, c := range changed {
		if row, ok := rows[c.ID]; ok {
			m, err := row.Message()
			if err != nil {
				return nil, nil, err
			}
			stored = append(stored, m)
		}
	}
	return stored, changed, nil
}

// MayWrite reports whether a client may write a message. It may not if the stored message with that id has another
// role or is a request of another agent, or if the message is of the system and system is false.
func MayWrite(row Stored, stored bool, m *Message, system bool) bool {
	return (!stored || row.Role == m.Role && !row.Asked) && (m.Role != RoleSystem || system)
}

// Writable returns the messages of a client's list that the client may write. ids has their ids, and the ids of stored
// messages in the list that the client may not write: these messages stay.
func Writable(rows map[string]Stored, sent []Message, system bool) (list []Message, ids map[string]bool) {
	ids = map[string]bool{}
	for _, m := range sent {
		row, stored := rows[m.ID]
		allowed := MayWrite(row, stored, &m, system)
		if allowed {
			list = append(list, m)
		}
		if allowed || stored {
			ids[m.ID] = true
		}
	}
	return list, ids
}

// RemovedIDs returns the stored messages that a request of a client removes: the messages missing from its list, if
// every message of the list is stored. A list with a message that is not stored may come from a client with an old
// copy of the conversation, and removes nothing; nor does an empty list. Messages of the system stay unless system
// is set.
func RemovedIDs(rows map[string]Stored, sent map[string]bool, system bool) (ids []string) {
	for id := range sent {
		if rows[id].Place == 0 {
			return nil
		}
	}
	for id, row := range rows {
		if !sent[id] && len(sent) > 0 && (system || row.Role != RoleSystem) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // chaos tests need an order that does not vary
	return ids
}
