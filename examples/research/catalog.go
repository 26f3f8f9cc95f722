package research

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// Catalogs is the class of the object that starts the job and detects its end.
const Catalogs dohost.Namespace[Catalog] = "catalog"

// CatalogName is the name of the one catalog.
const CatalogName = "main"

// Catalog starts the files and counts those that have finished.
type Catalog struct {
	cfg   *Config
	state *dohost.State
	paths []string
}

const (
	startedKey     = "started"
	finishedKey    = "finished"
	finishedPrefix = "finished/"
	startBatch     = 16
	remindEvery    = 100 * time.Millisecond
)

func (c *Config) catalog() dohost.Class {
	return dohost.Bind(Catalogs, func(_ context.Context, st *dohost.State) (*Catalog, error) {
		paths, err := c.Paths()
		return &Catalog{c, st, paths}, err
	}, &dohost.Handlers[Catalog]{OnAlarm: (*Catalog).startNext},
		dohost.Expose("begin", dohost.NoArg((*Catalog).Begin)),
		dohost.Expose("read", dohost.NoArg((*Catalog).Read)))
}

// Begin starts the job. The job continues by itself from then on, through any restart.
func (c *Catalog) Begin(ctx context.Context) (files int, err error) {
	_, begun, err := dohost.Get[int](ctx, c.state.Storage(), startedKey)
	if err != nil || begun {
		return len(c.paths), err
	}
	if err := dohost.Put(ctx, c.state.Storage(), startedKey, 0); err != nil {
		return 0, err
	}
	return len(c.paths), c.state.SetAlarm(ctx, time.Now())
}

// startNext starts the next few files. When all have started, it checks periodically whether all have finished, if
// Config.Done is set.
func (c *Catalog) startNext(ctx context.Context, _ dohost.AlarmInfo) error {
	started, _, err := dohost.Get[int](ctx, c.state.Storage(), startedKey)
	if err != nil {
		return err
	}
	if started >= len(c.paths) {
		if c.cfg.Done == nil {
			return nil
		}
		return c.notifyDone(ctx)
	}
	next := min(started+startBatch, len(c.paths))
	for i := started; i < next; i++ {
		if err := ask(ctx, Researchers.Get(c.state, c.cfg.ResearcherName(i)), (*Researcher).Start, c.paths[i]); err != nil {
			return err
		}
	}
	if err := dohost.Put(ctx, c.state.Storage(), startedKey, next); err != nil {
		return err
	}
	return c.state.SetAlarm(ctx, time.Now())
}

// notifyDone calls Config.Done repeatedly once the job is done.
func (c *Catalog) notifyDone(ctx context.Context) error {
	finished, _, err := dohost.Get[int](ctx, c.state.Storage(), finishedKey)
	if err != nil {
		return err
	}
	if finished == len(c.paths) {
		c.cfg.Done()
	}
	return c.state.SetAlarm(ctx, time.Now().Add(remindEvery))
}

// Read returns the number of files that were read completely.
func (c *Catalog) Read(ctx context.Context) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.state.Storage(), finishedKey)
	return n, err
}

// finished counts a completely read file, once.
func (c *Catalog) finished(ctx context.Context, path string) error {
	store := c.state.Storage()
	if _, before, err := dohost.Get[bool](ctx, store, finishedPrefix+path); err != nil || before {
		return err
	}
	if err := dohost.Put(ctx, store, finishedPrefix+path, true); err != nil {
		return err
	}
	return dohost.Add(ctx, store, finishedKey, 1)
}
