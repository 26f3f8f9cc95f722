package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/research"
)

// report is a line from the worker process to the supervisor.
type report struct {
	Account *account    `json:"account,omitempty"` // since the process began
	Trouble *trouble    `json:"trouble,omitempty"` // why the last step failed; nil if it did not
	Step    bool        `json:"step,omitempty"`    // the first step of the process is durable
	Begun   bool        `json:"begun,omitempty"`   // the job continues by itself from here
	Result  *demoResult `json:"result,omitempty"`
}

// trouble is the error of a failed step, unless its incarnation was ended.
type trouble struct {
	Full bool   `json:"full"` // the store refuses writes for lack of space
	Err  string `json:"err"`
}

// demoResult contains the words that the objects have counted.
type demoResult struct {
	Words map[string]int `json:"words"`
	Own   map[string]int `json:"own"`
}

// worker is the process that runs the job. It counts the host's events.
type worker struct {
	cmd   *demoCmd
	plan  *demoPlan
	host  *dohost.Host
	cfg   *research.Config
	done  chan struct{} // gets a token when all files are counted
	first chan struct{} // closed with the first durable step

	mu      sync.Mutex // guards the rest
	out     *json.Encoder
	account account
	stepped bool
	trouble *trouble
}

// work runs the worker process.
func (c *demoCmd) work(out io.Writer) error {
	plan, err := c.readPlan()
	if err != nil {
		return err
	}
	w := &worker{
		cmd: c, plan: plan, out: json.NewEncoder(out), done: make(chan struct{}, 1), first: make(chan struct{}),
		account: account{Causes: map[string]int{}, Places: map[string]int{}},
	}
	chaos, err := dohost.ParseChaos(plan.Evict, plan.At, plan.Mode, plan.Seed+uint64(plan.Killed))
	if err != nil {
		return err
	}
	w.cfg = &research.Config{
		Files: c.files(plan), Piece: plan.Piece, Mergers: demoMergers, Together: demoFilesPerAgent, KeepAlive: demoKeepAlive,
		Step: w.step, Read: w.read, Seen: w.countDuplicate, Done: w.finished,
	}
	w.host, err = dohost.Open(filepath.Join(c.Data, storeFolder), &dohost.Options{Chaos: chaos, Listener: w.listener(), Grace: time.Second}, w.cfg.Classes()...)
	if err != nil {
		return err
	}
	err = w.run()
	if errors.Is(err, dohost.ErrNoSpace) {
		err = fmt.Errorf("%s: %w", fullText(c.Data), err)
	}
	return errors.Join(err, w.host.Close())
}

func (w *worker) run() error {
	ctx := context.Background()
	if w.cmd.Worker == "begin" {
		if err := retryCall(ctx, func(ctx context.Context) error {
			_, err := dohost.CallNoArg(ctx, research.Catalogs.Get(w.host, research.CatalogName), (*research.Catalog).Begin)
			return err
		}); err != nil {
			return err
		}
		w.send(report{Begun: true})
	}
	tick := time.NewTicker(reportPeriod)
	defer tick.Stop()
	first := w.first
	for n := 0; ; n++ {
		select {
		case <-first:
			w.send(report{Step: true})
			first = nil
		case <-w.done:
			return w.collect(ctx)
		case <-w.host.Failed():
			return w.host.Err()
		case <-tick.C:
			w.sendAccount()
		}
		if first == nil {
			// Read the counts while they grow, as a client would.
			_, _ = w.words(ctx, strconv.Itoa(n%demoMergers))
		}
	}
}

// collect reads the result from the objects, under evictions.
func (w *worker) collect(ctx context.Context) error {
	r := &demoResult{Words: map[string]int{}, Own: map[string]int{}}
	for i := range demoMergers {
		if err := retryCall(ctx, func(ctx context.Context) error {
			words, err := w.words(ctx, strconv.Itoa(i))
			for _, it := range words {
				r.Words[it.Word] = it.Count
			}
			return err
		}); err != nil {
			return err
		}
	}
	paths, err := w.cfg.Paths()
	if err != nil {
		return err
	}
	for i := 0; i < len(paths); i += demoFilesPerAgent {
		if err := retryCall(ctx, func(ctx context.Context) error {
			own, err := dohost.CallNoArg(ctx, research.Researchers.Get(w.host, w.cfg.ResearcherName(i)), (*research.Researcher).Totals)
			if err == nil {
				r.Own = addCounts(r.Own, own)
			}
			return err
		}); err != nil {
			return err
		}
	}
	w.sendAccount()
	w.send(report{Result: r})
	return nil
}

// errTruncated is the error of a stream without its end mark.
var errTruncated = errors.New("stream was truncated")

// words streams the words of a merger.
func (w *worker) words(ctx context.Context, merger string) (words []research.Word, err error) {
	id := research.Mergers.Get(w.host, merger).ID()
	defer func() {
		if p := recover(); p != nil {
			err = &dohost.Error{Op: "http", ID: id, Err: errTruncated} // as a client sees it
		}
	}()
	rec := httptest.NewRecorder()
	w.host.ServeObject(rec, httptest.NewRequestWithContext(ctx, "GET", "/", nil), id)
	lines := json.NewDecoder(bytes.NewReader(rec.Body.Bytes()))
	for {
		var word research.Word
		if rec.Code != 200 || lines.Decode(&word) != nil {
			return nil, &dohost.Error{Op: "http", ID: id, Err: fmt.Errorf("%w: status %d", errTruncated, rec.Code)}
		}
		if word.Word == "" {
			return words, nil
		}
		words = append(words, word)
	}
}

// retryCall repeats an idempotent call until it succeeds, for up to a minute.
func retryCall(ctx context.Context, fn func(context.Context) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent, MaxAttempts: 10_000, BaseDelay: -1, MaxElapsed: time.Minute}, fn)
}
