package objectstore

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	goleak.VerifyTestMain(m)
}

const dir = "/store"

// open opens a store on fs, which is closed when the test ends.
func open(t testing.TB, fs *FS, o Options) *Store {
	t.Helper()
	o.FS = fs
	s, err := Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s
}

// failer is the common part of a test and a property.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// live is an object with an incarnation: its range, its epoch and a batch.
type live struct {
	*Range
	*Batch
	e Epoch
}

func (s *Store) live(class, name string) live {
	r := s.Range(ID{class, name})
	e := s.NewEpoch()
	r.Begin(e)
	return live{Range: r, Batch: r.NewBatch(e), e: e}
}

// released is an output that sends its error to a channel.
type released chan error

func (r released) Release(err error) { r <- err }

func newReleased() released { return make(released, 1) }

// commit hands the batch over and waits until it is durable.
func (l live) commit(t failer) {
	t.Helper()
	done := newReleased()
	l.Sync(done)
	if err := l.Commit(l.Batch); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func (l live) put(t failer, key, value string) {
	t.Helper()
	if err := l.Put(SpaceKV, []byte(key), []byte(value), false); err != nil {
		t.Fatal(err)
	}
}

func (l live) want(t failer, key, value string) {
	t.Helper()
	v, ok, err := l.Get(nil, SpaceKV, []byte(key))
	if err != nil || !ok || string(v) != value {
		t.Fatalf("Get(%q) = %q, %v, %v; want %q", key, v, ok, err, value)
	}
}

func TestOpenReportsGenerationAndCleanClose(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	if s.Generation() != 1 || !s.Clean() {
		t.Fatalf("new store: generation %d, clean %v", s.Generation(), s.Clean())
	}
	o := s.live("counter", "a")
	o.put(t, "n", "1")
	o.commit(t)
	o.put(t, "n", "2")
	if err := o.Commit(o.Batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, fs, Options{})
	if s.Generation() != 2 || !s.Clean() {
		t.Fatalf("after Close: generation %d, clean %v", s.Generation(), s.Clean())
	}
	s.live("counter", "a").want(t, "n", "2")
	s.Abandon()

	s = open(t, fs, Options{})
	if s.Generation() != 3 || s.Clean() {
		t.Fatalf("after Abandon: generation %d, clean %v", s.Generation(), s.Clean())
	}
}
