package natslog

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

func openTable(t *testing.T, s *natstest.Servers, name string, o Options) *Table {
	t.Helper()
	o.System = s.Connect(t, "system")
	table, err := OpenTable(t.Context(), s.Connect(t, "app"), name, &o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func read(t *testing.T, table *Table) cluster.Snapshot {
	t.Helper()
	s, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTable(t *testing.T) {
	t.Parallel()
	servers := natstest.Start(t, 3, "always")
	o := Options{LeaseTime: testLease}
	a, b, other := openTable(t, servers, "main", o), openTable(t, servers, "main", o), openTable(t, servers, "main2", o)
	if s := read(t, a); s.Revision != 0 || len(s.Members) != 0 {
		t.Fatalf("an empty table has %v", s)
	}
	plan, err := cluster.NewPlan(3)
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.Swap(t.Context(), 0, plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Swap(t.Context(), 0, plan); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a second first plan: %v", err)
	}
	plan.Cells[1], plan.Draining = cluster.Cell{Owner: "x", Holder: "y", Avoid: "z"}, []string{"y"}
	second, err := b.Swap(t.Context(), first, plan)
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	if _, err := a.Swap(t.Context(), first, plan); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("an old revision: %v", err)
	}
	if err := a.Renew(t.Context(), cluster.Member{ID: "M1", Address: "http://one"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(t.Context(), cluster.Member{ID: "M2", Address: "http://two"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(t.Context(), cluster.Member{ID: "M2", Address: "http://three"}); err == nil {
		t.Error("the table has accepted another member for its node")
	}
	s := read(t, b)
	slices.SortFunc(s.Members, func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
	if s.Revision != second || !s.Plan.Equal(plan) || len(s.Members) != 2 || s.Members[1] != (cluster.Member{ID: "M2", Address: "http://two"}) {
		t.Errorf("the table has %v", s)
	}
	if s := read(t, other); s.Revision != 0 || len(s.Members) != 0 {
		t.Errorf("another cluster has %v", s)
	}
	<-b.Changed()
	if err := b.Leave(t.Context(), "M1"); err == nil {
		t.Error("a node has ended the session of another one")
	}
	for range 2 {
		if err := a.Leave(t.Context(), "M1"); err != nil {
			t.Error(err)
		}
	}
	if err := other.Leave(t.Context(), "never"); err != nil {
		t.Error(err)
	}
	if s := read(t, b); len(s.Members) != 1 || s.Members[0].ID != "M2" {
		t.Errorf("after Leave the table has %v", s.Members)
	}
}

// TestMemberExpires renews one record of two.
func TestMemberExpires(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	o := Options{Replicas: 1, UnsafeReplicas: true, LeaseTime: minLease}
	silent, renewed := openTable(t, s, "main", o), openTable(t, s, "main", o)
	if err := silent.Renew(t.Context(), cluster.Member{ID: "silent"}); err != nil {
		t.Fatal(err)
	}
	begun := silent.own.sent.Load().monotonic
	for {
		err := renewed.Renew(t.Context(), cluster.Member{ID: "renewed"})
		if err != nil && !errors.Is(err, sharedlog.ErrFenced) { // the record may expire on a busy machine
			t.Fatal(err)
		}
		if members := read(t, renewed).Members; len(members) == 1 && members[0].ID == "renewed" {
			break
		}
		if time.Since(begun) > minLease+patience {
			t.Fatalf("after %v the table has %v", time.Since(begun), read(t, renewed).Members)
		}
		if err := sleep(t.Context(), retryTime); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < minLease-margin {
		t.Errorf("the record has expired after %v", took)
	}
}

// TestTableSkipsDamagedMembers has two damaged records and a good one. Each is logged once.
func TestTableSkipsDamagedMembers(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := single
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	table := openTable(t, natstest.Start(t, 1, "always"), "main", o)
	for id, text := range map[string]string{"broken": "no record", "nameless": `{"address":"http://other"}`} {
		if _, err := table.log.js.Publish(t.Context(), keySubject(table.memberKey(id)), []byte(text), jetstream.WithRetryAttempts(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Renew(t.Context(), cluster.Member{ID: "good"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if s := read(t, table); len(s.Members) != 1 || s.Members[0].ID != "good" {
			t.Errorf("the members are %v", s.Members)
		}
	}
	if got := log.String(); strings.Count(got, "broken") != 1 || !strings.Contains(got, "nameless has no id") || strings.Count(got, "\n") != 2 {
		t.Errorf("the log is %s", got)
	}
}

func TestTableRefusesDamage(t *testing.T) {
	t.Parallel()
	table := openTable(t, natstest.Start(t, 1, "always"), "main", single)
	if _, err := table.log.js.Publish(t.Context(), keySubject(table.planKey()), []byte("no plan"), jetstream.WithRetryAttempts(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Read(t.Context()); !errors.Is(err, errDamaged) {
		t.Errorf("a damaged plan: %v", err)
	}
	if _, err := OpenTable(t.Context(), table.log.nc, strings.Repeat("x", maxClusterName+1), &Options{UnsafeSync: true}); err == nil {
		t.Error("a long name is accepted")
	}
	if name := CellName(strings.Repeat("x", maxClusterName), cluster.MaxCells-1, cluster.MaxCells); !cellName.MatchString(name) {
		t.Errorf("the cell of a long name cannot be opened: %s", name)
	}
}

// TestReadOfAnOldRecord has a node that reads once that another one has no record, although the bucket has its key.
func TestReadOfAnOldRecord(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	a, b := joinNode(t, s, "main", unhurried), openTable(t, s, "main", unhurried)
	bucket := b.log.owners
	b.log.owners = &oldRead{Stream: bucket, name: a.own.name}
	if members := read(t, b).Members; len(members) != 0 {
		t.Fatalf("the old read has the members %v", members)
	}
	if members := read(t, b).Members; len(members) != 1 || members[0] != a.member {
		t.Errorf("the members are %v", members)
	}
}
