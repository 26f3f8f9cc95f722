package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/dohost/dohost"
)

// guestsOf lists the guests of a table after a cursor, and counts the rows that it reads.
func guestsOf(read *int) func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
		return func(yield func(dohost.Resource, error) bool) {
			q := dohost.Query[guest]{Index: "table", After: dohost.Cursor(v.Query().After)}
			if table, ok := v.Query().Fields["table"]; ok {
				q.Prefix = dohost.KeyOf(table)
			}
			for row, err := range guests.Scan(v, &q) {
				*read++
				d := dohost.Resource{Kind: "guest", ID: row.Key, Fields: map[string]string{"table": row.Value.Table}, Cursor: string(row.Cursor)}
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

// menu is an extension with two items. It records that the host has called it.
func menu(asked *bool) dohost.ClassExtension {
	return dohost.ClassExtension{
		Kinds: []string{"dish"},
		Inspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			*asked = true
			return func(yield func(dohost.Resource, error) bool) {
				_ = yield(dohost.Resource{Kind: "dish", ID: "soup", State: "hot"}, nil) && yield(dohost.Resource{Kind: "dish", ID: "cake"}, nil)
			}
		},
		Admin: func(context.Context, *dohost.State, any, *dohost.AdminRequest) (bool, error) { return false, nil },
	}
}

// TestFindDetails reads the items of a party by queries: only those rows, and only the extension of their kind.
func TestFindDetails(t *testing.T) {
	var read int
	var asked bool
	h := open(t, nil, dohost.Bind(parties, newParty, &dohost.Handlers[party]{OnInspect: guestsOf(&read), Extensions: []dohost.ClassExtension{menu(&asked)}}))
	id := parties.Get(h, "a").ID()
	for i := range 20 {
		if err := dohost.CallNoResult(t.Context(), parties.Get(h, "a"), (*party).invite, guest{fmt.Sprintf("g%d%d", i%10, i/10), fmt.Sprint(i / 10)}); err != nil {
			t.Fatal(err)
		}
	}
	find := func(q *dohost.DetailQuery, most int) (ids, cursor string) {
		t.Helper()
		for d, err := range h.FindDetails(t.Context(), id, q) {
			if err != nil {
				t.Fatal(err)
			}
			if ids, cursor = ids+d.ID+" ", d.Cursor; len(ids) > 4*most {
				break
			}
		}
		return ids, cursor
	}
	fields := map[string]string{"table": "1"}
	first, cursor := find(&dohost.DetailQuery{Kind: "guest", Fields: fields}, 1)
	rest, _ := find(&dohost.DetailQuery{Kind: "guest", Fields: fields, After: cursor}, 2)
	if first != "g01 g11 " || rest != "g21 g31 g41 " || read != 5 || asked {
		t.Errorf("%q and %q of %d rows, the extension called: %t", first, rest, read, asked)
	}
	read = 0
	for _, c := range []struct {
		q    *dohost.DetailQuery
		want string
	}{
		{&dohost.DetailQuery{Kind: "dish"}, "soup cake "}, {&dohost.DetailQuery{Kind: "dish", State: "hot"}, "soup "},
		{&dohost.DetailQuery{Kind: "dish", ID: "cake"}, "cake "}, {&dohost.DetailQuery{Kind: "dish", Fields: map[string]string{"table": ""}}, ""},
		{&dohost.DetailQuery{Kind: "dish", Can: dohost.ActionRetry}, ""},
	} {
		if got, _ := find(c.q, 20); got != c.want || read != 0 {
			t.Errorf("%+v: %q of %d rows", c.q, got, read)
		}
	}
	if got, _ := find(nil, 40); len(got) != 20*4+len("soup cake ") {
		t.Errorf("all: %q", got)
	}
	var bad *dohost.ArgumentError
	for _, err := range h.FindDetails(t.Context(), id, &dohost.DetailQuery{Kind: "dish", After: "soup"}) {
		if !errors.As(err, &bad) {
			t.Errorf("after an item without a cursor: %v", err)
		}
	}
	if bad == nil {
		t.Error("after an item without a cursor: no error")
	}
	list := h.FindDetails(t.Context(), id, &dohost.DetailQuery{Kind: "guest", Fields: fields})
	fields["table"] = "none" // the list has a copy
	n := 0
	for d, err := range list {
		if n++; err != nil || d.Fields["table"] != "1" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n != 10 {
		t.Errorf("%d guests after a change of the query by its caller", n)
	}
}
