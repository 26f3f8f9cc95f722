package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// checkUnknown compares the records with the messages that wait for names that are not known.
func checkUnknown(ctx context.Context, d *desk, known ...string) error {
	rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
	if err != nil {
		return err
	}
	want := []string{}
	for _, row := range rows {
		if m := row.Value; !slices.Contains(known, m.To) {
			want = append(want, fmt.Sprintf("messages %s to %s", m.ID, m.To))
		}
	}
	got, err := unknownTargets(ctx, d)
	slices.Sort(got)
	slices.Sort(want)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("the records are %q, the messages %q", got, want)
	}
	return err
}

// TestUnknownTargetsAtEveryPoint sends three messages to a name that no agent has, and one to the clerk. Later one of them gets the name of the
// clerk, and one is deleted. Wherever the incarnation or the process ends, exactly the messages that wait for an unknown name have records.
func TestUnknownTargetsAtEveryPoint(t *testing.T) {
	once := func(ctx context.Context, h *dohosttest.Host, fn func(ctx context.Context, d *desk) error) error {
		return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
			return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
				return errors.Join(checkUnknown(ctx, d, "clerk"), fn(ctx, d), checkUnknown(ctx, d, "clerk"))
			})
		})
	}
	s := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(names("clerk")...)},
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := once(ctx, h, func(ctx context.Context, d *desk) error {
				for _, m := range []inbox.Message{{ID: "1", To: "bob"}, {ID: "2", To: "bob"}, {ID: "3", To: "bob"}, {ID: "4", To: "clerk"}} {
					m.Created = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
					_, stored, err := messages.Get(ctx, d.Storage(), m.ID)
					if err == nil && !stored {
						_, err = inbox.Send(ctx, d.Storage(), &messages, m)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			return errors.Join(err, once(ctx, h, func(ctx context.Context, d *desk) error {
				_, err := messages.Update(ctx, d.Storage(), "1", func(m *inbox.Message) error { m.To = "clerk"; return nil })
				_, err2 := messages.Delete(ctx, d.Storage(), "2")
				return errors.Join(err, err2)
			}))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
				list, err := unknownTargets(ctx, d)
				if len(list) != 1 || list[0] != "messages 3 to bob" {
					err = errors.Join(err, fmt.Errorf("the records are %q", list))
				}
				n, countErr := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
				if n != 1 {
					err = errors.Join(err, fmt.Errorf("%d messages wait", n))
				}
				return errors.Join(err, countErr)
			})
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 8, 20))
}

// TestUnknownTargetsAtRandom writes messages to known and unknown names, in transactions that may fail, and restarts the host with more
// agents. After each step exactly the messages that wait for an unknown name have records.
func TestUnknownTargetsAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	all := []string{"a", "b", "c", "d"}
	steps, recorded, known := 0, 0, all[:1]
	classOf := func() dohost.Class { return deskClass(names(known...)...) }
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{classOf()}}, func(t *testing.T, h *dohosttest.Host) {
		refused := errors.New("refused")
		for range 150 {
			if rng.IntN(12) == 0 && len(known) < len(all) {
				if known = all[:len(known)+1]; h.Restart(classOf()) != nil {
					t.Fatal("no restart")
				}
			}
			if rng.IntN(12) == 0 {
				h.Crash()
			}
			inDesk(t, t.Context(), h, func(ctx context.Context, d *desk) error {
				err := dohost.Transaction(ctx, func(ctx context.Context) (err error) {
					for range 1 + rng.IntN(4) {
						err = errors.Join(err, writeAtRandom(ctx, d, rng, all))
					}
					if rng.IntN(5) == 0 {
						err = errors.Join(err, refused)
					}
					return err
				})
				if errors.Is(err, refused) {
					err = nil
				}
				list, listErr := unknownTargets(ctx, d)
				steps, recorded = steps+1, recorded+len(list)
				return errors.Join(err, listErr, checkUnknown(ctx, d, known...))
			})
			h.Advance(time.Duration(rng.IntN(700)) * time.Millisecond)
		}
	})
	t.Logf("%d steps found %d records", steps, recorded)
	if steps == 0 || recorded == 0 {
		t.Error("want some of each")
	}
}

// writeAtRandom puts or deletes one of ten messages.
func writeAtRandom(ctx context.Context, d *desk, rng *rand.Rand, all []string) error {
	key := fmt.Sprint("k", rng.IntN(10))
	if rng.IntN(4) == 0 {
		_, err := messages.Delete(ctx, d.Storage(), key)
		return err
	}
	m := inbox.Message{ID: key, Role: "user", To: all[rng.IntN(len(all))], Content: "x", Created: time.Now()}
	switch rng.IntN(5) {
	case 0:
		m.Processed = time.Now()
	case 1:
		m.Role = "assistant"
	}
	return messages.Put(ctx, d.Storage(), m)
}
