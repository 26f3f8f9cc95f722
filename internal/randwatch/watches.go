package randwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// watcher is a client outside of the object that folds the deltas of a query. It continues after the end of a watch.
type watcher struct {
	name    string
	query   *dohost.Query[note]
	places  func(note) int // how often the query has a note
	busy    bool
	rows    map[dohost.Cursor]string // their descriptions
	at      dohost.Position
	begun   bool // it has had a DeltaReset
	listing bool // and no DeltaReady since
	// A change may have several deltas. The At of all but the last one is the position before the change, so a watch that has ended between
	// them gets all of them again.
	several bool
	again   bool
	last    dohost.DeltaKind
	when    time.Time // of the last delta
}

func newWatchers() []*watcher {
	once := func(has func(note) bool) func(note) int {
		return func(n note) int {
			if has(n) {
				return 1
			}
			return 0
		}
	}
	ranked := once(func(n note) bool { return n.Rank > 0 })
	shown := func(n note) bool { return !n.Hidden }
	return []*watcher{
		{name: "all", places: once(func(note) bool { return true })},
		{name: "backwards", query: &dohost.Query[note]{Reverse: true}, places: once(func(note) bool { return true })},
		{name: "ranks", query: &dohost.Query[note]{Index: byRank}, places: ranked},
		{name: "high ranks first", query: &dohost.Query[note]{Index: byRank, Reverse: true}, places: ranked},
		{name: "tags", query: &dohost.Query[note]{Index: byTag}, several: true, places: func(n note) int { return len(n.Tags) }},
		{
			name: "tag x, backwards", query: &dohost.Query[note]{Index: byTag, Prefix: dohost.KeyOf("x"), Reverse: true},
			places: once(func(n note) bool { return slices.Contains(n.Tags, "x") }),
		},
		{name: "shown", query: &dohost.Query[note]{Where: shown}, places: once(shown)},
		{
			name: "shown of rank 2", query: &dohost.Query[note]{Index: byRank, Equal: dohost.KeyOf(2), Where: shown},
			places: once(func(n note) bool { return n.Rank == 2 && !n.Hidden }),
		},
	}
}

// watch continues a watch that no other act has, for a time at most. The seed selects the watch and its pace.
func (w *Observer) watch(ctx context.Context, h *dohosttest.Host, seed int, most time.Duration) error {
	p := w.take(seed)
	if p == nil {
		return w.Err()
	}
	defer w.release(p)
	w.Sent(fmt.Sprintf("a watch of %s from %v, for %v, with the seed %d", p.name, p.at, most, seed))
	_ = boards.Get(h, "a").Do(ctx, func(ctx context.Context, b *board) error { // an ending: the next watch continues
		return w.follow(ctx, b, p, seed/len(w.watchers), most+apart(seed))
	})
	return w.Err()
}

func (w *Observer) take(seed int) *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.watchers[seed%len(w.watchers)]
	if p.busy {
		return nil
	}
	p.busy = true
	if seed%3 > 0 && !p.several { // a new watch
		p.at, p.begun = dohost.Position{}, false
	}
	return p
}

func (w *Observer) release(p *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.busy = false
}

var errWatched = errors.New("the time of the watch is over")

// heartbeat is the Heartbeat of some watches.
const heartbeat = 7 * time.Second

// follow folds deltas for a time at most; until the first DeltaReady if it is zero. The seed selects the pace: a loop that breaks soon, one
// that sleeps, and one that writes notes. A watch may also write notes before it begins.
func (w *Observer) follow(ctx context.Context, b *board, p *watcher, seed int, most time.Duration) error {
	limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(most, time.Hour), errWatched)
	defer cancel()
	o := &dohost.WatchOptions{After: p.at}
	if seed%7 == 0 {
		o.Heartbeat = heartbeat
	}
	if m, err := b.read(ctx); err != nil {
		return err
	} else if err := b.emit(ctx, m.Serial); err != nil { // which an earlier incarnation may have written
		return err
	}
	begun, count, writes := time.Now(), 0, 0
	p.again = p.several
	if seed%5 == 1 && most > 0 {
		if err := b.putInLoop(ctx, p, seed, seed); err != nil {
			return err
		}
	}
	for d, err := range notes.Watch(limited, b.st.Storage(), p.query, o) {
		if err != nil {
			if errors.Is(err, errWatched) {
				w.checkQuiet(p, begun, o.Heartbeat > 0)
			} else if !randtest.Ended(ctx, err) {
				w.Faultf("a watch of %s: %v", p.name, err)
			}
			return err
		}
		if err := w.fold(ctx, b, p, d); err != nil {
			return err
		}
		breaks := seed%4 == 1 || p.several && seed/4%12 < 4 && most > 0
		if count++; most == 0 && d.Kind == dohost.DeltaReady || w.Err() != nil || breaks && count > seed/4%12 && !(p.several && p.listing) {
			return nil
		}
		switch {
		case seed%4 == 2: // a slow consumer
			if err := dohost.Sleep(limited, time.Duration(1+seed)*10*time.Millisecond); err != nil {
				return err
			}
		case seed%4 == 3 && count%2 == 0 && most > 0:
			if writes++; writes > 4 {
				break
			}
			k := count // or the row that the watch has listed last
			if d.Row.Key != "" {
				k = int(d.Row.Key[1] - '0')
			}
			if err := b.putInLoop(ctx, p, k, seed+count); err != nil {
				return err
			}
		}
	}
	return nil
}

// putInLoop writes notes in the event of a watch, which reports them once they are durable.
func (b *board) putInLoop(ctx context.Context, p *watcher, k, n int) error {
	x := &execution{board: b, name: fmt.Sprint("the loop of ", p.name)}
	return x.do(ctx, []Instr{{Op: Put, K: k % 8, N: n}})
}

// fold applies a delta, and compares the rows with the notes at a position.
func (w *Observer) fold(ctx context.Context, b *board, p *watcher, d dohost.Delta[note]) error {
	durable, err := b.durable(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Compared()
	if p.listing { // since its rows were read, the watch has waited for the outputs before them
		durable = w.emitted
	}
	row := ""
	if d.Kind != dohost.DeltaReset && d.Kind != dohost.DeltaReady {
		row = describe(d.Row.Value, d.Row.Version)
	}
	_, has := p.rows[d.Row.Cursor]
	_, had := p.rows[d.Was]
	wrong := false
	switch d.Kind {
	case dohost.DeltaReset:
		if missed := w.newest.Offset - p.at.Offset; p.at.Log != "" && p.at.Log == w.newest.Log && missed <= keep {
			w.Faultf("a watch of %s at %v begins again, although the feed ends at %v and keeps %d changes", p.name, p.at, w.newest, keep)
		}
		p.rows, p.begun, p.listing = map[dohost.Cursor]string{}, true, true
	case dohost.DeltaEnter:
		wrong = has
		p.rows[d.Row.Cursor] = row
	case dohost.DeltaUpdate:
		wrong = !had || d.Was != d.Row.Cursor && has
		delete(p.rows, d.Was)
		p.rows[d.Row.Cursor] = row
	case dohost.DeltaExit:
		wrong = !has || p.rows[d.Row.Cursor] != row
		delete(p.rows, d.Row.Cursor)
	}
	if wrong && !p.again || !p.begun {
		w.Faultf("a watch of %s has the delta %v of %s, and it has the row: %t, had it: %t", p.name, d.Kind, row, has, had)
	}
	if serial, ok := w.born[row]; d.Kind != dohost.DeltaExit && row != "" && (!ok || serial > durable) {
		w.Faultf("a watch of %s has the delta %v of %s of version %d of the model (%t), and version %d is durable", p.name, d.Kind, row, serial, ok, durable)
	}
	p.at, p.last, p.when = d.At, d.Kind, time.Now()
	if d.Kind != dohost.DeltaReady && (p.several || d.At.Log == "") {
		return nil
	}
	p.again = false
	if d.Kind == dohost.DeltaReady {
		p.listing = false
	}
	// Between two changes of one batch there is no moment.
	now, ok := w.moments[d.At]
	if !ok {
		if d.Kind == dohost.DeltaReady {
			w.Faultf("a watch of %s is ready at %v, where no batch has ended", p.name, d.At)
		}
		return nil
	}
	w.Acknowledge(now.serial)
	if now.serial > durable {
		w.Faultf("a watch of %s has %v, of version %d of the model, and version %d is durable", p.name, d.At, now.serial, durable)
	}
	w.compareLocked(p, d.At, now.notes)
	return nil
}

// checkQuiet checks a watch at its end, which it has waited for: it has reported that there is nothing to report, and its heartbeats.
func (w *Observer) checkQuiet(p *watcher, begun time.Time, beats bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range []time.Time{w.changed, p.when} {
		if t.After(begun) {
			begun = t
		}
	}
	quiet := time.Since(begun)
	if p.at == w.newest && p.last != dohost.DeltaReady && quiet > 5*time.Second || beats && quiet > 2*heartbeat {
		w.Faultf("a watch of %s is quiet for %v after %v at %v", p.name, quiet, p.last, p.at)
	}
}

// compareLocked compares the rows of a watch with those that its query selects.
func (w *Observer) compareLocked(p *watcher, at dohost.Position, all map[string]noteAt) {
	got := slices.Sorted(maps.Values(p.rows))
	var want []string
	for _, n := range all {
		for range p.places(n.Note) {
			want = append(want, n.String())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Faultf("a watch of %s at %v has %q, want %q", p.name, at, got, want)
	}
}

// checkWatchers continues all watches until they are ready, and compares them with the notes, at rest.
func (w *Observer) checkWatchers(ctx context.Context, b *board, m *model) error {
	for _, p := range w.watchers {
		if err := w.follow(ctx, b, p, 0, 0); err != nil {
			return err
		}
		w.mu.Lock()
		w.compareLocked(p, p.at, m.Notes)
		w.mu.Unlock()
	}
	return nil
}
