package randprog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// access executes an instruction that reads or writes. apply does the same to the model.
func (x *execution) access(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	switch in.Op {
	case Put, PutNoWait, PutMany, PutTooLong, Add, Delete, DeleteMany, DeleteAll, Get, GetMany, List:
		return x.accessKeys(ctx, in)
	case SetAlarm, DeleteAlarm, GetAlarm:
		return x.accessAlarm(ctx, in)
	}
	return x.accessRows(ctx, in)
}

func (x *execution) accessKeys(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	s, k := x.st.Storage(), key(in.K)
	three := []string{key(in.K), key(in.K + 1), key(in.K + 2)}
	switch in.Op {
	case Put, PutNoWait:
		if in.Op == PutNoWait {
			err = dohost.PutNoWait(ctx, s, k, in.N)
		} else {
			err = dohost.Put(ctx, s, k, in.N)
		}
		apply = func(s *state) string { s.keys[k] = in.N; return "" }
	case PutMany:
		err = dohost.PutMany(ctx, s, map[string]int{three[0]: in.N, three[1]: in.N, three[2]: in.N})
		apply = func(s *state) string {
			for _, k := range three {
				s.keys[k] = in.N
			}
			return ""
		}
	case PutTooLong:
		err = dohost.PutMany(ctx, s, map[string]int{k: in.N, strings.Repeat("x", 3000): in.N})
		apply = func(*state) string { return "limit" }
	case Add:
		err = dohost.Add(ctx, s, k, in.N)
		apply = func(s *state) string { s.keys[k] += in.N; return "" }
	case Delete:
		var existed bool
		existed, err = s.Delete(ctx, k)
		got = fmt.Sprint(existed)
		apply = func(s *state) string {
			_, ok := s.keys[k]
			delete(s.keys, k)
			return fmt.Sprint(ok)
		}
	case DeleteMany:
		var n int
		n, err = s.DeleteMany(ctx, three...)
		got = fmt.Sprint(n)
		apply = func(s *state) string {
			before := len(s.keys)
			maps.DeleteFunc(s.keys, func(k string, _ int) bool { return slices.Contains(three, k) })
			return fmt.Sprint(before - len(s.keys))
		}
	case DeleteAll:
		err = s.DeleteAll(ctx)
		apply = func(s *state) string {
			*s = state{serial: s.serial, keys: map[string]int{}, rows: map[string]modelRow{}}
			return ""
		}
	case Get:
		var v int
		var ok bool
		v, ok, err = dohost.Get[int](ctx, s, k)
		got = fmt.Sprint(v, ok)
		apply = func(s *state) string { v, ok := s.keys[k]; return fmt.Sprint(v, ok) }
	case GetMany:
		var found map[string]int
		found, err = dohost.GetMany[int](ctx, s, three...)
		got = fmt.Sprint(found)
		apply = func(s *state) string {
			found := maps.Clone(s.keys)
			maps.DeleteFunc(found, func(k string, _ int) bool { return !slices.Contains(three, k) })
			return fmt.Sprint(found)
		}
	case List:
		return x.list(ctx, in)
	}
	return got, apply, err
}

func (x *execution) list(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	l := listing{reverse: in.N&1 > 0}
	if in.N&2 > 0 {
		l.limit = 1 + in.N%3
	}
	switch (in.N >> 2) % 6 {
	case 1:
		l.start = key(in.K)
	case 2:
		l.end = key(in.K)
	case 3:
		l.after = key(in.K)
	case 4:
		l.prefix = key(in.K)
	case 5:
		l.start, l.end = key(in.K), key(in.K+2)
	}
	items, err := dohost.List[int](ctx, x.st.Storage(), &dohost.ListOptions{
		Prefix: l.prefix, Start: l.start, After: l.after, End: l.end, Reverse: l.reverse, Limit: l.limit,
	})
	for _, it := range items {
		got += fmt.Sprint(it.Key, "=", it.Value, " ")
	}
	return got, func(s *state) (want string) {
		for _, k := range l.selected(slices.Collect(maps.Keys(s.keys))) {
			want += fmt.Sprint(k, "=", s.keys[k], " ")
		}
		return want
	}, err
}

func (x *execution) accessRows(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	s, k := x.st.Storage(), rowKey(in.K)
	switch in.Op {
	case Insert:
		err = rows.Insert(ctx, s, row{in.K, in.N})
		apply = func(s *state) string {
			if _, ok := s.rows[k]; ok {
				return "conflict"
			}
			s.putRow(k, in.N)
			return ""
		}
	case PutRow:
		err = rows.Put(ctx, s, row{in.K, in.N})
		apply = func(s *state) string { s.putRow(k, in.N); return "" }
	case UpdateRow:
		var r dohost.Row[row]
		r, err = rows.Update(ctx, s, k, func(r *row) error { r.N += in.N; return nil })
		got = rowText(r.Key, r.Value.N, r.Version)
		apply = func(s *state) string { return s.updateRow(k, in.N, 0) }
	case UpdateIf:
		var r dohost.Row[row]
		r, err = rows.UpdateIf(ctx, s, k, uint64(in.N), func(r *row) error { r.N++; return nil })
		got = rowText(r.Key, r.Value.N, r.Version)
		apply = func(s *state) string { return s.updateRow(k, 1, uint64(in.N)) }
	case DeleteRow:
		var existed bool
		existed, err = rows.Delete(ctx, s, k)
		got = fmt.Sprint(existed)
		apply = func(s *state) string { return fmt.Sprint(s.deleteRow(k)) }
	case DeleteRowIf:
		err = rows.DeleteIf(ctx, s, k, uint64(in.N))
		apply = func(s *state) string {
			switch r, ok := s.rows[k]; {
			case !ok:
				return "not found"
			case r.version != uint64(in.N):
				return "conflict"
			}
			s.deleteRow(k)
			return ""
		}
	case GetRow:
		var r dohost.Row[row]
		var ok bool
		r, ok, err = rows.Get(ctx, s, k)
		got = fmt.Sprint(r.Value.N, r.Version, ok)
		apply = func(s *state) string { r, ok := s.rows[k]; return fmt.Sprint(r.value, r.version, ok) }
	case ListRows, CountRows:
		return x.listRows(ctx, in)
	case ReadFeed:
		durable := x.w.durableFeed(x.e)
		var list []change
		list, err = x.readFeed(ctx)
		got = fmt.Sprint(list)
		apply = func(s *state) string {
			if hasPrefix(s.feed, list) && (len(list) >= len(durable) || !hasPrefix(s.feed, durable)) {
				return got // the rest is not durable
			}
			return fmt.Sprint(s.feed)
		}
	default:
		err = errors.New("no such instruction: " + string(in.Op))
	}
	return got, apply, err
}

// updateRow adds n to a row; with a version, only to a row of that version.
func (s *state) updateRow(k string, n int, version uint64) string {
	r, ok := s.rows[k]
	switch {
	case !ok:
		return "not found"
	case version != 0 && r.version != version:
		return "conflict"
	}
	s.putRow(k, r.value+n)
	return rowText(k, r.value+n, r.version+1)
}

func rowText(k string, n int, version uint64) string { return fmt.Sprintf("%s=%d.%d ", k, n, version) }

// listRows lists or counts rows: by their keys, or by the index of their numbers.
func (x *execution) listRows(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	q := dohost.Query[row]{Reverse: in.N&1 > 0}
	if in.N&2 > 0 {
		q.Limit = 1 + in.N%2
	}
	least := 10 * in.K
	byNumber := in.N&4 > 0
	if byNumber {
		q.Index, q.Start = "n", dohost.KeyOf(least)
	}
	if in.N&8 > 0 {
		q.Where = func(r row) bool { return r.N%2 == 0 }
	}
	want := func(s *state) string {
		list := slices.Sorted(maps.Keys(s.rows))
		if byNumber {
			slices.SortStableFunc(list, func(a, b string) int { return s.rows[a].value - s.rows[b].value })
		}
		if q.Reverse {
			slices.Reverse(list)
		}
		list = slices.DeleteFunc(list, func(k string) bool {
			return byNumber && s.rows[k].value < least || q.Where != nil && s.rows[k].value%2 != 0
		})
		if q.Limit > 0 && len(list) > q.Limit {
			list = list[:q.Limit]
		}
		if in.Op == CountRows {
			return fmt.Sprint(len(list))
		}
		text := ""
		for _, k := range list {
			text += rowText(k, s.rows[k].value, s.rows[k].version)
		}
		return text
	}
	if in.Op == CountRows {
		n, err := rows.Count(ctx, x.st.Storage(), &q)
		return fmt.Sprint(n), want, err
	}
	for r, err := range rows.All(ctx, x.st.Storage(), &q) {
		if err != nil {
			return "", want, err
		}
		got += rowText(r.Key, r.Value.N, r.Version)
	}
	return got, want, nil
}

func (x *execution) accessAlarm(ctx context.Context, in Instr) (got string, apply func(*state) string, err error) {
	switch in.Op {
	case SetAlarm:
		at := time.Now().Add(time.Duration(in.N) * time.Second)
		err = x.st.SetAlarm(ctx, at)
		due := at.Add(time.Millisecond - 1).UnixMilli()
		if in.N == 0 {
			due = at.UnixMilli()
		}
		apply = func(s *state) string { s.alarm = modelAlarm{set: true, at: due}; return "" }
	case DeleteAlarm:
		err = x.st.DeleteAlarm(ctx)
		apply = func(s *state) string { s.alarm = modelAlarm{}; return "" }
	case GetAlarm:
		var at time.Time
		var ok bool
		at, ok, err = x.st.GetAlarm(ctx)
		if ok {
			got = fmt.Sprint(at.UnixMilli())
		}
		apply = func(s *state) string {
			switch {
			case s.alarm.vague:
				return got
			case s.alarm.set:
				return fmt.Sprint(s.alarm.at)
			}
			return ""
		}
	}
	return got, apply, err
}
