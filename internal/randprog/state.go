package randprog

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

// state is the content of an object, in the model.
type state struct {
	serial  int // in the order of commits, also of those that were lost
	keys    map[string]int
	rows    map[string]modelRow
	feed    []change // since the last DeleteAll
	entries int      // of the feed, in a state that was read: feed lacks those that are not durable
	alarm   modelAlarm
}

type modelRow struct {
	value   int
	version uint64
}

type change struct {
	op      string // insert, update or delete
	key     string
	version uint64
}

// modelAlarm is the alarm. A vague one may be set or not, at any time: its handler has failed or
// was interrupted.
type modelAlarm struct {
	set   bool
	at    int64 // in milliseconds
	vague bool
}

func newState() *state {
	return &state{keys: map[string]int{}, rows: map[string]modelRow{}}
}

func (s *state) clone() *state {
	c := *s
	c.keys, c.rows, c.feed = maps.Clone(s.keys), maps.Clone(s.rows), slices.Clone(s.feed)
	return &c
}

// matches reports whether an incarnation with this state may find the other one in its storage. The alarm is not
// compared, and of the feed only the entries that are durable, and the number of all.
func (s *state) matches(found *state) bool {
	return maps.Equal(s.keys, found.keys) && maps.Equal(s.rows, found.rows) &&
		len(s.feed) == found.entries && hasPrefix(s.feed, found.feed)
}

// hasPrefix reports whether a list begins with another one.
func hasPrefix[T comparable](list, prefix []T) bool {
	return len(prefix) <= len(list) && slices.Equal(list[:len(prefix)], prefix)
}

func (s *state) String() string {
	text := fmt.Sprintf("keys %v, rows %v, %d feed entries", s.keys, s.rows, max(s.entries, len(s.feed)))
	if s.alarm.set {
		text += fmt.Sprintf(", alarm %d", s.alarm.at)
	}
	return text
}

// putRow writes a row.
func (s *state) putRow(key string, value int) {
	old, ok := s.rows[key]
	op := "update"
	if !ok {
		op = "insert"
	}
	s.rows[key] = modelRow{value, old.version + 1}
	s.feed = append(s.feed, change{op, key, old.version + 1})
}

// deleteRow deletes a row, if it exists.
func (s *state) deleteRow(key string) bool {
	old, ok := s.rows[key]
	if ok {
		delete(s.rows, key)
		s.feed = append(s.feed, change{"delete", key, old.version})
	}
	return ok
}

// listing is a selection of keys or rows.
type listing struct {
	start, end, after, prefix string
	reverse                   bool
	limit                     int
}

// selected returns the keys that a listing selects, in its order.
func (l listing) selected(keys []string) []string {
	sort.Strings(keys)
	if l.reverse {
		slices.Reverse(keys)
	}
	var found []string
	for _, k := range keys {
		in := k >= l.start && (l.after == "" || k > l.after) && (l.end == "" || k < l.end) && (len(k) >= len(l.prefix) && k[:len(l.prefix)] == l.prefix)
		if in && (l.limit == 0 || len(found) < l.limit) {
			found = append(found, k)
		}
	}
	return found
}
