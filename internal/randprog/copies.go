package randprog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/hostof"
	"github.com/dohost/dohost/internal/randtest"
)

// maxCopies bounds the copies of a run.
const maxCopies = 4

// copying is an export or a backup of an object: it has one of the states that the object had between its begin and its
// end.
type copying struct {
	from   *object
	states []*state
	vague  bool // the alarm was being delivered
}

// beginCopyingLocked begins with the states that may be durable.
func (o *object) beginCopyingLocked() *copying {
	return &copying{o, slices.Clone(o.history[o.acknowledged:]), o.handling != nil}
}

// endLocked adds the states since the begin.
func (c *copying) endLocked() {
	for _, s := range c.from.history {
		if s.serial > c.states[len(c.states)-1].serial {
			c.states = append(c.states, s)
		}
	}
	c.vague = c.vague || c.from.handling != nil
}

// objectLocked returns a new object with the states of the copy, or, if absent, with none.
func (c *copying) objectLocked(name string, process *dohost.Host, absent bool) *object {
	o := &object{name: name, lost: map[int]bool{}, process: process}
	if absent {
		o.history = append(o.history, newState())
	}
	for _, s := range c.states {
		s = s.clone()
		o.serial++
		s.serial, s.alarm.vague = o.serial, s.alarm.vague || c.vague || absent
		o.history = append(o.history, s)
	}
	return o
}

// mayBeEmpty reports whether the object may have had no durable data.
func (c *copying) mayBeEmpty() bool {
	return slices.ContainsFunc(c.states, func(s *state) bool { return len(s.keys)+len(s.rows) == 0 })
}

// copyObject exports the object and imports it under another name.
func (x *execution) copyObject(ctx context.Context) error {
	host := hostof.State(x.st).(*dohost.Host)
	name := "copy of " + x.name("copy")
	c := x.w.beginCopy(x.e)
	if c == nil {
		return nil
	}
	var export bytes.Buffer
	err := host.Export(ctx, x.st.ID(), &export)
	if !x.w.exported(c, err) {
		return ctx.Err()
	}
	err = host.Import(context.WithoutCancel(ctx), dohost.ID{Class: x.st.ID().Class, Name: name}, &export)
	x.w.imported(c, name, host, err)
	return ctx.Err()
}

// beginCopy begins a copy of the event's object; it returns nil if there are enough.
func (w *Observer) beginCopy(e *event) *copying {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.copies == maxCopies {
		return nil
	}
	w.copies++
	return e.o.beginCopyingLocked()
}

// exported checks the end of an export, and reports whether there is one.
func (w *Observer) exported(c *copying, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.endLocked()
	switch {
	case err == nil:
		w.Compared()
		return true
	case errors.Is(err, dohost.ErrNotFound) && !c.mayBeEmpty():
		w.faultOf(c.from, "it has data, but: %v", err)
	}
	return false
}

// imported adds the object that an import has made. If the host ends during the import, there may be one, or none.
func (w *Observer) imported(c *copying, name string, host *dohost.Host, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := errors.Is(err, dohost.ErrClosed) || errors.Is(err, dohost.ErrFenced)
	switch {
	case err == nil || ended:
		w.Compared()
		w.objects[name] = c.objectLocked(name, host, ended)
		w.names = append(w.names, name)
	case errors.Is(err, dohost.ErrNoSpace) && w.disk.mayRefuse():
		w.names = append(w.names, name) // nothing is left
	default:
		w.faultOf(c.from, "the import of %s: %v", name, err)
	}
}

// objectOrCopy returns the name of an object: one of the first ones or, from Objects on, of a copy that exists.
func (w *Observer) objectOrCopy(k int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := k - Objects; n >= 0 && n < len(w.names) {
		return w.names[n]
	}
	return objectName(k % Objects)
}

// all returns the names of all objects.
func (w *Observer) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for k := range Objects {
		list = append(list, objectName(k))
	}
	return append(list, w.names...)
}

// Backup makes a backup of the store, and opens a host on it after a power cut: each object has a state that was durable
// during the backup.
func (w *Observer) Backup(ctx context.Context, host *dohost.Host) error {
	dir := fmt.Sprintf("backup %d", w.Next())
	w.Sent(dir)
	restored := NewObserver()
	options := dohost.Options{Listener: restored.Listener()}
	list := w.beginBackup()
	err := host.Backup(ctx, dir)
	if !w.endBackup(list, err) {
		return w.Err()
	}
	w.disk.AfterPowerCut(&options)
	restored.passive = true
	for _, c := range list {
		restored.objects[c.from.name] = c.objectLocked(c.from.name, nil, false)
	}
	copied, err := dohost.Open(dir, &options, Class(restored))
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	for _, c := range list {
		read := Program{ID: -restored.Next(), Code: []Instr{{Op: List}, {Op: ListRows}, {Op: ReadFeed}, {Op: GetAlarm}, {Op: Put, N: 1}, {Op: Sync}, {Op: List}}}
		if err := restored.Send(ctx, copied, c.from.name, read); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", dir, err), copied.Close())
		}
	}
	return errors.Join(copied.Close(), w.Err())
}

func (w *Observer) beginBackup() (list []*copying) {
	names := w.all()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		list = append(list, w.objectLocked(name).beginCopyingLocked())
	}
	return list
}

// endBackup checks the end of a backup, and reports whether there is one.
func (w *Observer) endBackup(list []*copying, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range list {
		c.endLocked()
	}
	if err != nil && !errors.Is(err, dohost.ErrClosed) && !errors.Is(err, dohost.ErrFenced) && !strings.Contains(err.Error(), randtest.ErrSync.Error()) {
		w.Faultf("a backup fails: %v", err)
	}
	return err == nil
}
