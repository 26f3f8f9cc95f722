package main

import (
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// TestRowCost counts the commits of a row: the insertion, the start of its call, and the writes of the call.
func TestRowCost(t *testing.T) {
	commits, size, err := small(t).rowCost(t.Context(), agent.OnRowBatch(&numberRows, "number", (*rowAgent).onRows, nil))
	if err != nil || commits != 3 || size < 100 || size > 1000 {
		t.Errorf("%d commits of %d B, %v: want 3 of a few hundred bytes", commits, size, err)
	}
}

// TestRowIsDeletedDurably reads the durable state when the caller continues: the row is not in it.
func TestRowIsDeletedDurably(t *testing.T) {
	s, err := small(t).openRows(agent.OnRowBatch(&numberRows, "number", (*rowAgent).onRows, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const rows = 20
	for i := range rows {
		if err := s.one(t.Context()); err != nil {
			t.Fatal(err)
		}
		sn, err := kernel.OfHost(s.Host).Store().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range sn.Rows(rowAgents.Get(s, name(0)).ID(), numberRows.Name, objectstore.RowQuery{}) {
			t.Errorf("after %d calls, the row %q is on the disk, %v", i+1, row.Key, err)
		}
		sn.Close()
	}
}

// TestVerifyNoticesRows finishes ten rows, and then inserts one that nothing finishes, or counts one that was not inserted.
func TestVerifyNoticesRows(t *testing.T) {
	b := small(t)
	for want, fault := range map[string]func(s *rowSide) (more int64, err error){
		"": func(*rowSide) (int64, error) { return 0, nil },
		"agent 0 has 1 rows that are not finished": func(s *rowSide) (int64, error) {
			_, err := dohost.Call(t.Context(), rowAgents.Get(s, name(0)), (*rowAgent).insert, 99)
			return 0, err
		},
		"the agents have 10 receipts, and 11 rows were finished": func(*rowSide) (int64, error) { return 1, nil },
	} {
		s, err := b.openRows()
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := s.one(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		more, err := fault(s)
		if err != nil {
			t.Fatal(err)
		}
		err = s.verify(t.Context(), 10+more)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
