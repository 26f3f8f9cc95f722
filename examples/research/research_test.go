package research_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/research"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// text returns a folder of random words.
func text(seed uint64, files, words int) fstest.MapFS {
	rng := rand.New(rand.NewPCG(seed, 0))
	fsys := fstest.MapFS{}
	for f := range files {
		var b strings.Builder
		for range words {
			n := 1 + rng.IntN(3)
			if rng.IntN(50) == 0 {
				n = 30 + rng.IntN(120)
			}
			for range n {
				b.WriteByte("abcdeXYZ"[rng.IntN(8)])
			}
			b.WriteString([]string{" ", "\n", ", ", "9", "é"}[rng.IntN(5)])
		}
		fsys[fmt.Sprintf("d%d/f%d.txt", f%3, f)] = &fstest.MapFile{Data: []byte(b.String())}
	}
	return fsys
}

var word = regexp.MustCompile("[A-Za-z]+")

// countDirectly counts without objects.
func countDirectly(fsys fstest.MapFS) map[string]int {
	counts := map[string]int{}
	for _, f := range fsys {
		for _, w := range word.FindAllString(string(f.Data), -1) {
			if len(w) > 64 {
				w = w[:64]
			}
			counts[w]++
		}
	}
	return counts
}

func TestResearchCountIsExactUnderChaos(t *testing.T) {
	const seeds = 3
	for _, mode := range []dohost.EndMode{dohost.EndFence, dohost.EndRestart, dohost.EndCrash} {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("%v-%d", mode, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					countUnder(t, dohost.Chaos{Seed: seed, Rate: 0.01, Mode: mode}, text(seed, 7, 400))
				})
			})
		}
	}
}

// countUnder runs the job to its end and compares.
func countUnder(t *testing.T, chaos dohost.Chaos, fsys fstest.MapFS) {
	done := make(chan struct{}, 1)
	cfg := &research.Config{Files: fsys, Piece: 64, Mergers: 3, Together: 2, KeepAlive: 100 * time.Millisecond, Done: func() {
		select {
		case done <- struct{}{}:
		default:
		}
	}}
	var evictions atomic.Int64
	o := kernel.OnFS(&dohost.Options{Chaos: chaos, Listener: dohost.Listener{
		Fenced: func(dohost.Ended) { evictions.Add(1) },
	}}, objectstore.NewMemFS())
	h, err := dohost.Open("data", o, cfg.Classes()...)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	mustRetry(t, func(ctx context.Context) error {
		_, err := dohost.CallNoArg(ctx, research.Catalogs.Get(h, research.CatalogName), (*research.Catalog).Begin)
		return err
	})
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		t.Fatalf("not done after 10 min and %d evictions", evictions.Load())
	}
	got := map[string]int{}
	want := countDirectly(fsys)
	own := 0
	for w := range want {
		mustRetry(t, func(ctx context.Context) error {
			n, err := dohost.Call(ctx, research.Mergers.Get(h, cfg.MergerName(w)), (*research.Merger).Count, w)
			got[w] = n
			return err
		})
	}
	for i := 0; i < len(fsys); i += cfg.Together {
		mustRetry(t, func(ctx context.Context) error {
			sums, err := dohost.CallNoArg(ctx, research.Researchers.Get(h, cfg.ResearcherName(i)), (*research.Researcher).Totals)
			if err == nil {
				for _, n := range sums {
					own += n
				}
			}
			return err
		})
	}
	if !maps.Equal(got, want) {
		t.Errorf("counts differ after %d evictions", evictions.Load())
	}
	total := 0
	for _, n := range want {
		total += n
	}
	if own != total {
		t.Errorf("researchers counted %d words, there are %d", own, total)
	}
	if evictions.Load() < 100 {
		t.Errorf("only %d evictions", evictions.Load())
	}
}

// mustRetry repeats an idempotent call until it succeeds.
func mustRetry(t *testing.T, fn func(context.Context) error) {
	t.Helper()
	err := dohost.Retry(t.Context(), &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent, MaxAttempts: 1000, MaxElapsed: time.Hour}, fn)
	if err != nil {
		t.Fatal(err)
	}
}

// The catalog of a server without Config.Done is idle once it has started the files.
func TestCatalogWithoutDoneHasNoAlarm(t *testing.T) {
	cfg := &research.Config{Files: text(1, 3, 20), Piece: 64, Mergers: 1, Together: 2, KeepAlive: time.Second}
	dohosttest.Run(t, &dohosttest.Options{Classes: cfg.Classes()}, func(t *testing.T, h *dohosttest.Host) {
		catalog := research.Catalogs.Get(h, research.CatalogName)
		if _, err := dohost.CallNoArg(t.Context(), catalog, (*research.Catalog).Begin); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		read, err := dohost.CallNoArg(t.Context(), catalog, (*research.Catalog).Read)
		if err != nil || read != 3 {
			t.Errorf("%d files are read: %v", read, err)
		}
		if info, err := h.Host().Inspect(t.Context(), catalog.ID()); err != nil || !info.Alarm.IsZero() {
			t.Errorf("its alarm is due at %v: %v", info.Alarm, err)
		}
	})
}
