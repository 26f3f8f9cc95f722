package dohost_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

type storedObject struct{ storage *dohost.Storage }

var (
	storedObjects = dohost.Namespace[storedObject]("ledger")
	storedClass   = dohost.Bind(storedObjects, func(_ context.Context, s *dohost.State) (*storedObject, error) {
		return &storedObject{s.Storage()}, nil
	}, nil)
)

// TestDamageOfABlockEndsNeitherHostNorCheck flips one bit of one table of a store with 300 objects.
func TestDamageOfABlockEndsNeitherHostNorCheck(t *testing.T) {
	const objects = 300
	dir := t.TempDir()
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	value := func(i int) string { return fmt.Sprintf("%01000d", i*7919) }
	h := openStored(t, dir)
	for i := range objects {
		if err := storedObjects.Get(h, name(i)).Do(t.Context(), func(ctx context.Context, l *storedObject) error {
			return dohost.Put(ctx, l.storage, "k", value(i))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), openStored(t, dir).Close()); err != nil { // the second flushes the log
		t.Fatal(err)
	}
	flipBit(t, dir, func(table []byte) int { return len(table) / 3 })

	h = openStored(t, dir)
	bad := 0
	for i := range objects {
		var got string
		err := storedObjects.Get(h, name(i)).Do(t.Context(), func(ctx context.Context, l *storedObject) (err error) {
			got, _, err = dohost.Get[string](ctx, l.storage, "k")
			return err
		})
		switch {
		case errors.Is(err, dohost.ErrDamaged):
			bad++
		case err != nil || got != value(i):
			t.Errorf("object %d has %q, %v", i, got, err)
		}
	}
	if bad == 0 || bad > objects/2 || h.Stats().Damaged != 1 || h.Err() != nil {
		t.Errorf("%d objects cannot be read, %d damaged blocks, the host says %v", bad, h.Stats().Damaged, h.Err())
	}
	listed, skipped := 0, 0
	for _, err := range h.Objects(t.Context(), "ledger", "") {
		if errors.Is(err, dohost.ErrDamaged) {
			skipped++
		} else if err == nil {
			listed++
		}
	}
	if listed != objects-bad || skipped != 1 {
		t.Errorf("%d objects are listed, and %d errors", listed, skipped)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	var problems []dohost.CheckProblem
	stats, err := dohost.CheckDir(t.Context(), dir, func(p dohost.CheckProblem) { problems = append(problems, p) }, storedClass)
	if err != nil || len(problems) != 1 || stats.Problems != 1 || stats.Objects != int64(objects-bad) {
		t.Errorf("check: %+v, %v, %v", stats, problems, err)
	}
	exported := 0
	for i := range objects {
		if err := dohost.ExportDir(t.Context(), dir, dohost.ID{Class: "ledger", Name: name(i)}, io.Discard); err == nil {
			exported++
		} else if !errors.Is(err, dohost.ErrDamaged) {
			t.Error(err)
		}
	}
	// The object before the damaged block may have rows in it, so its export is refused too.
	if exported != objects-bad && exported != objects-bad-1 {
		t.Errorf("%d objects were exported, %d cannot be read", exported, bad)
	}
}

// The first block has all rows of the first class, and the second block is not damaged.
func TestClassesInTheStoreOmitADamagedBlock(t *testing.T) {
	dir := t.TempDir()
	h := openStored(t, dir)
	for i := range 20 {
		if err := storedObjects.Get(h, fmt.Sprint(i)).Do(t.Context(), func(ctx context.Context, l *storedObject) error {
			return dohost.Put(ctx, l.storage, "k", fmt.Sprintf("%01000d", i))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), openStored(t, dir).Close()); err != nil {
		t.Fatal(err)
	}
	flipBit(t, dir, func([]byte) int { return 100 })
	h = openStored(t, dir)
	classes, err := h.StoredClasses(t.Context())
	if !slices.Equal(classes, []string{"ledger"}) || !errors.Is(err, dohost.ErrDamaged) {
		t.Errorf("classes %v, %v", classes, err)
	}
}

// TestCheckStoreContinuesAfterADamagedBlock checks a class that lists its items: the check reports the damage once, and is complete.
func TestCheckStoreContinuesAfterADamagedBlock(t *testing.T) {
	dir := t.TempDir()
	h := openStored(t, dir)
	for i := range 20 {
		if err := storedObjects.Get(h, fmt.Sprint(i)).Do(t.Context(), func(ctx context.Context, l *storedObject) error {
			return dohost.Put(ctx, l.storage, "k", fmt.Sprintf("%01000d", i))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), openStored(t, dir).Close()); err != nil {
		t.Fatal(err)
	}
	flipBit(t, dir, func([]byte) int { return 100 })
	s, err := objectstore.Open(dir, &objectstore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	listed, reported := 0, int64(0)
	class := dohost.Bind(storedObjects, func(_ context.Context, s *dohost.State) (*storedObject, error) {
		return &storedObject{s.Storage()}, nil
	}, &dohost.Handlers[storedObject]{
		OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			listed++
			return func(func(dohost.Resource, error) bool) {}
		},
	})
	stats, err := kernel.CheckStore(t.Context(), s, func(dohost.CheckProblem) { reported++ }, []dohost.Class{class})
	if err != nil || reported == 0 || stats.Problems != reported || listed == 0 {
		t.Errorf("%d problems, %d were reported, and %d objects were listed: %v", stats.Problems, reported, listed, err)
	}
}

// A read that finds a damaged block does not wait for a Listener that hangs.
func TestReadOfADamagedBlockDoesNotWaitForTheListener(t *testing.T) {
	dir := t.TempDir()
	h := openStored(t, dir)
	put := func(ctx context.Context, l *storedObject) error { return dohost.Put(ctx, l.storage, "k", "v") }
	if err := errors.Join(storedObjects.Get(h, "a").Do(t.Context(), put), h.Close(), openStored(t, dir).Close()); err != nil {
		t.Fatal(err)
	}
	flipBit(t, dir, func([]byte) int { return 20 })

	begun := time.Now()
	called, quit := make(chan dohost.Damage, 1), make(chan struct{})
	h, err := dohost.Open(dir, &dohost.Options{Listener: dohost.Listener{Damaged: func(d dohost.Damage) {
		called <- d
		<-quit
	}}}, storedClass)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	defer close(quit)
	err = storedObjects.Get(h, "a").Do(t.Context(), func(ctx context.Context, l *storedObject) error {
		_, _, err := dohost.Get[string](ctx, l.storage, "k")
		return err
	})
	if took := time.Since(begun); took > 9*time.Second || !errors.Is(err, dohost.ErrDamaged) {
		t.Errorf("Open and the read took %v: %v", took, err)
	}
	if d := <-called; d.File == "" {
		t.Errorf("reported: %+v", d)
	}
}

// TestStartAlarmsSurviveADamagedIndexBlock flips one bit in the first block of the alarm index. The
// block has the only entry of the first class, which is also in the start index.
func TestStartAlarmsSurviveADamagedIndexBlock(t *testing.T) {
	const alarms = 100
	const one, many dohost.Namespace[alarmObject] = "one-chime", "two-chimes"
	ran := make(chan dohost.ID, 2*alarms)
	dir := t.TempDir()
	openChimes := func() *dohost.Host {
		var classes []dohost.Class
		for _, class := range []dohost.Namespace[alarmObject]{one, many} {
			classes = append(classes, dohost.Bind(class, func(_ context.Context, s *dohost.State) (*alarmObject, error) {
				return &alarmObject{s}, nil
			}, &dohost.Handlers[alarmObject]{
				OnAlarm: func(c *alarmObject, _ context.Context, _ dohost.AlarmInfo) error { ran <- c.st.ID(); return nil },
			}))
		}
		h, err := dohost.Open(dir, nil, classes...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		return h
	}
	h := openChimes()
	set := func(ctx context.Context, c *alarmObject) error {
		return c.st.SetStartAlarm(ctx, time.Now().Add(time.Hour))
	}
	err := one.Get(h, "a").Do(t.Context(), set)
	for i := range alarms {
		err = errors.Join(err, many.Get(h, fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))).Do(t.Context(), set))
	}
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	h, err = dohost.Open(dir, nil) // flushes the log, and delivers nothing
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	flipBit(t, dir, func(table []byte) int { return 100 })

	h = openChimes()
	seen := map[dohost.ID]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(seen) < alarms+1 && ctx.Err() == nil {
		select {
		case id := <-ran:
			seen[id] = true
		case <-ctx.Done():
		}
	}
	if len(seen) != alarms+1 || h.Stats().Damaged != 1 {
		t.Errorf("%d alarms ran, that of the first class: %v; %d damaged blocks", len(seen), seen[one.Get(h, "a").ID()], h.Stats().Damaged)
	}
}

type alarmObject struct{ st *dohost.State }

func openStored(t *testing.T, dir string) *dohost.Host {
	t.Helper()
	h, err := dohost.Open(dir, nil, storedClass)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// flipBit flips a bit of the only table of a store: of the byte that of chooses.
func flipBit(t *testing.T, dir string, of func(table []byte) int) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	b, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	b[of(b)] ^= 1
	if err := os.WriteFile(tables[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
}
