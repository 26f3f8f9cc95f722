package tally

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// Libraries is the class of the object that starts the documents and knows when
// they have finished.
const Libraries dohost.Namespace[Library] = "library"

// LibraryName is the name of the one library.
const LibraryName = "main"

// Library starts the documents and counts those that have finished.
type Library struct {
	cfg   *Config
	state *dohost.State
	paths []string
}

const (
	startedKey     = "started"
	finishedKey    = "finished"
	finishedPrefix = "finished/"
	startAtOnce    = 16
	remindEvery    = 100 * time.Millisecond
)

func (c *Config) library() dohost.Class {
	return dohost.Bind(Libraries, func(_ context.Context, st *dohost.State) (*Library, error) {
		paths, err := c.Paths()
		return &Library{c, st, paths}, err
	}, dohost.OnAlarm((*Library).goOn))
}

// Begin starts the job. From then on it goes on by itself, through any restart.
func (l *Library) Begin(ctx context.Context, _ struct{}) (files int, err error) {
	_, begun, err := dohost.Get[int](ctx, l.state.Storage(), startedKey)
	if err != nil || begun {
		return len(l.paths), err
	}
	if err := dohost.Put(ctx, l.state.Storage(), startedKey, 0); err != nil {
		return 0, err
	}
	return len(l.paths), l.state.SetAlarm(ctx, time.Now())
}

// goOn starts the next few documents; when all have started it looks from time to
// time whether all have finished.
func (l *Library) goOn(ctx context.Context, _ dohost.AlarmInfo) error {
	started, _, err := dohost.Get[int](ctx, l.state.Storage(), startedKey)
	if err != nil {
		return err
	}
	if started >= len(l.paths) {
		return l.remind(ctx)
	}
	next := min(started+startAtOnce, len(l.paths))
	for _, path := range l.paths[started:next] {
		if err := ask(ctx, Documents.Get(l.state, path), (*Document).Start, struct{}{}); err != nil {
			return err
		}
	}
	if err := dohost.Put(ctx, l.state.Storage(), startedKey, next); err != nil {
		return err
	}
	return l.state.SetAlarm(ctx, time.Now())
}

// remind says that the job is done, if it is, until somebody has listened.
func (l *Library) remind(ctx context.Context) error {
	finished, _, err := dohost.Get[int](ctx, l.state.Storage(), finishedKey)
	if err != nil {
		return err
	}
	if finished == len(l.paths) && l.cfg.Done != nil {
		l.cfg.Done()
	}
	return l.state.SetAlarm(ctx, time.Now().Add(remindEvery))
}

// finished counts a document that has come to its end, once.
func (l *Library) finished(ctx context.Context, path string) (struct{}, error) {
	store := l.state.Storage()
	if _, before, err := dohost.Get[bool](ctx, store, finishedPrefix+path); err != nil || before {
		return struct{}{}, err
	}
	if err := dohost.Put(ctx, store, finishedPrefix+path, true); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, dohost.Add(ctx, store, finishedKey, 1)
}
