package randinbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// watcher is a client outside of the object that folds the deltas of a query. It continues after the end of a watch.
type watcher struct {
	name    string
	query   *dohost.Query[inbox.Message]
	selects func(*inbox.Message) bool
	busy    bool
	rows    map[dohost.Cursor]inbox.Message
	at      dohost.Position
	begun   bool // it has had a DeltaReset
}

func newWatchers() []*watcher {
	return []*watcher{
		{name: "all", selects: func(*inbox.Message) bool { return true }},
		{
			name: "pending", query: &dohost.Query[inbox.Message]{Index: "pending", Prefix: dohost.KeyOf("clerk")},
			selects: func(i *inbox.Message) bool { return i.To == "clerk" && waits(i) },
		},
		{
			name: "conversation", query: &dohost.Query[inbox.Message]{Index: "conversation", Prefix: dohost.KeyOf("cook"), Reverse: true},
			selects: func(i *inbox.Message) bool {
				return !waits(i) && (i.To == "cook" && i.InReplyTo == "" || i.From == "cook" && i.Request == "")
			},
		},
		{
			name: "replies", query: &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.Role == chat.RoleAssistant }},
			selects: func(i *inbox.Message) bool { return i.Role == chat.RoleAssistant },
		},
	}
}

// recordMoment records the messages at the end of their feed, which was at another position before. The moments after that are those of
// batches that were not committed.
func (w *Observer) recordMoment(before dohost.Position, m *model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.moments, func(at dohost.Position, _ moment) bool { return at.Offset > before.Offset })
	if _, ok := w.moments[m.End]; !ok { // only then has this version changed a message
		w.newest, w.moments[m.End] = m.End, moment{m.Serial, m.messages()}
	}
}

// messages returns the rows that are messages.
func (m *model) messages() map[string]inbox.Message {
	rows := map[string]inbox.Message{}
	for id, i := range m.Items {
		if !isJob(i) {
			rows[id] = *i
		}
	}
	return rows
}

// watch continues a watch that no other act has, for a time at most. The seed selects the watch and its pace.
func (w *Observer) watch(ctx context.Context, h *dohosttest.Host, seed int, most time.Duration) error {
	p := w.take(seed)
	if p == nil {
		return w.Err()
	}
	defer w.release(p)
	w.Sent(fmt.Sprintf("a watch of %s from %v, for %v", p.name, p.at, most))
	_ = offices.Get(h, "a").Do(ctx, func(ctx context.Context, o *office) error { // an ending: the next watch continues
		return w.follow(ctx, o, p, seed, most+apart(seed))
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
	return p
}

func (w *Observer) release(p *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.busy = false
}

var errWatched = errors.New("the time of the watch is over")

// follow folds deltas for a time at most; until the first DeltaReady if it is zero.
func (w *Observer) follow(ctx context.Context, o *office, p *watcher, seed int, most time.Duration) error {
	limited, cancel := context.WithTimeoutCause(ctx, cmp.Or(most, time.Hour), errWatched)
	defer cancel()
	for d, err := range messages.Watch(limited, o.Storage(), p.query, &dohost.WatchOptions{After: p.at}) {
		if err != nil {
			if !errors.Is(err, errWatched) && !randtest.Ended(ctx, err) {
				w.Faultf("a watch of %s: %v", p.name, err)
			}
			return err
		}
		w.fold(p, d)
		if most == 0 && d.Kind == dohost.DeltaReady || w.Err() != nil {
			return nil
		}
		if seed%3 == 0 { // a slow consumer
			if err := dohost.Sleep(limited, time.Duration(seed)*10*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold applies a delta, and compares the rows with the messages at a position.
func (w *Observer) fold(p *watcher, d dohost.Delta[inbox.Message]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Compared()
	row := d.Row.Value
	_, has := p.rows[d.Row.Cursor]
	_, had := p.rows[d.Was]
	wrong := false
	switch d.Kind {
	case dohost.DeltaReset:
		if missed := w.newest.Offset - p.at.Offset; p.at.Log != "" && missed <= keep {
			w.Faultf("a watch of %s at %v begins again, although the feed ends at %v and keeps %d changes", p.name, p.at, w.newest, keep)
		}
		p.rows, p.begun = map[dohost.Cursor]inbox.Message{}, true
	case dohost.DeltaEnter:
		wrong = has
		p.rows[d.Row.Cursor] = row
	case dohost.DeltaUpdate:
		wrong = !had || d.Was != d.Row.Cursor && has
		delete(p.rows, d.Was)
		p.rows[d.Row.Cursor] = row
	case dohost.DeltaExit:
		gone := p.rows[d.Row.Cursor]
		wrong = !has || rowText(&gone) != rowText(&row)
		delete(p.rows, d.Row.Cursor)
	}
	if wrong || !p.begun {
		w.Faultf("a watch of %s has the delta %v of %s, and it has the row: %t, had it: %t", p.name, d.Kind, rowText(&row), has, had)
	}
	if p.at = d.At; d.At.Log == "" && d.Kind != dohost.DeltaReady {
		return
	}
	// Between two changes of one batch there is no moment.
	now, ok := w.moments[d.At]
	if !ok {
		if d.Kind == dohost.DeltaReady {
			w.Faultf("a watch of %s is ready at %v, where no batch has ended", p.name, d.At)
		}
		return
	}
	w.Acknowledge(now.serial)
	w.compareLocked(p, d.At, now.rows)
}

// compareLocked compares the rows of a watch with those that its query selects.
func (w *Observer) compareLocked(p *watcher, at dohost.Position, rows map[string]inbox.Message) {
	var got, want []string
	for _, i := range p.rows {
		got = append(got, rowText(&i))
	}
	for i := range maps.Values(rows) {
		if p.selects(&i) {
			want = append(want, rowText(&i))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Faultf("a watch of %s at %v has %q, want %q", p.name, at, got, want)
	}
}

// checkWatchers continues all watches until they are ready, and compares them with the messages, at rest.
func (w *Observer) checkWatchers(ctx context.Context, o *office, m *model) error {
	for _, p := range w.watchers {
		if err := w.follow(ctx, o, p, 1, 0); err != nil {
			return err
		}
		w.mu.Lock()
		w.compareLocked(p, p.at, m.messages())
		w.mu.Unlock()
	}
	return nil
}
