//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/dohost/dohost"
)

const tallies dohost.Namespace[tally] = "tally"

// tally is a counter that also counts by way of other counters.
type tally struct{ st *dohost.State }

// tallyProgram is the program with this class only.
func tallyProgram() {
	class := dohost.Bind(tallies, func(_ context.Context, st *dohost.State) (*tally, error) { return &tally{st}, nil },
		&dohost.Handlers[tally]{OnAlarm: (*tally).resume},
		dohost.Expose("add", (*tally).add), dohost.ExposeRead("total", (*tally).total), dohost.Expose("forward", (*tally).forward),
		dohost.ExposeRead("account", (*tally).account), dohost.Expose("write", (*tally).write), dohost.ExposeRead("written", (*tally).written))
	os.Exit(run(class))
}

// The keys of a tally.
const (
	totalKey      = "total"
	effectPrefix  = "effect/"  // the number of effects of an addition, by its id
	pendingPrefix = "pending/" // the callee of a call, by its id
	sentPrefix    = "sent/"    // the number of completed calls, by callee
	blobPrefix    = "blob/"    // random bytes, by their seed
)

// add adds one to the total and returns it. It does so again if it is called again with one id.
func (c *tally) add(ctx context.Context, id string) (int, error) {
	for _, key := range []string{totalKey, effectPrefix + id} {
		if err := dohost.Add(ctx, c.st.Storage(), key, 1); err != nil {
			return 0, err
		}
	}
	return c.total(ctx, struct{}{})
}

func (c *tally) total(ctx context.Context, _ struct{}) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.st.Storage(), totalKey)
	return n, err
}

// chain is a call that a tally makes of another one.
type chain struct{ ID, To string }

// forward calls add of another tally. It stores the id of the call first, so that the alarm completes a call that this incarnation does not.
func (c *tally) forward(ctx context.Context, call chain) (int, error) {
	if err := dohost.Put(ctx, c.st.Storage(), pendingPrefix+call.ID, call.To); err != nil {
		return 0, err
	}
	if err := c.st.SetAlarm(ctx, time.Now().Add(2*time.Second)); err != nil {
		return 0, err
	}
	return c.complete(ctx, call)
}

// complete makes a call whose id is stored, and counts it once.
func (c *tally) complete(ctx context.Context, call chain) (int, error) {
	n, err := dohost.Invoke[int](ctx, tallies.Get(c.st, call.To), "add", call.ID, &dohost.InvokeOptions{CallID: call.ID})
	if err != nil {
		return 0, err
	}
	pending, err := c.st.Storage().Delete(ctx, pendingPrefix+call.ID)
	if err != nil || !pending {
		return n, err
	}
	return n, dohost.Add(ctx, c.st.Storage(), sentPrefix+call.To, 1)
}

// resume handles the alarm. It calls with the stored ids, and sets the alarm again while a call is not completed.
func (c *tally) resume(ctx context.Context, _ dohost.AlarmInfo) error {
	calls, err := dohost.List[string](ctx, c.st.Storage(), &dohost.ListOptions{Prefix: pendingPrefix})
	if err != nil || len(calls) == 0 {
		return err
	}
	if err := c.st.SetAlarm(ctx, time.Now().Add(2*time.Second)); err != nil {
		return err
	}
	for _, call := range calls {
		if _, err := c.complete(ctx, chain{ID: call.Key[len(pendingPrefix):], To: call.Value}); err != nil {
			break // the alarm is delivered again
		}
	}
	return nil
}

// account is the state of a tally.
type account struct {
	Pending int            // calls that are not completed
	Sent    map[string]int // completed calls, by callee
	Effects map[string]int // by the id of an addition
}

func (c *tally) account(ctx context.Context, _ struct{}) (a account, err error) {
	pending, err := dohost.List[string](ctx, c.st.Storage(), &dohost.ListOptions{Prefix: pendingPrefix})
	if err != nil {
		return a, err
	}
	a.Pending = len(pending)
	if a.Sent, err = c.counts(ctx, sentPrefix); err != nil {
		return a, err
	}
	a.Effects, err = c.counts(ctx, effectPrefix)
	return a, err
}

func (c *tally) counts(ctx context.Context, prefix string) (map[string]int, error) {
	counts := map[string]int{}
	for it, err := range dohost.All[int](ctx, c.st.Storage(), &dohost.ListOptions{Prefix: prefix}) {
		if err != nil {
			return nil, err
		}
		counts[it.Key[len(prefix):]] = it.Value
	}
	return counts, nil
}

// blobSize is the number of bytes of a blob.
const blobSize = 256 << 10

// blob returns the bytes of a seed.
func blob(seed int) []byte {
	b := make([]byte, blobSize)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b) // it never fails
	return b
}

// blobWrite is the argument of write.
type blobWrite struct {
	Seed    int
	Padding string // takes memory while the call waits
}

// write stores a blob.
func (c *tally) write(ctx context.Context, w blobWrite) (struct{}, error) {
	return struct{}{}, dohost.Put(ctx, c.st.Storage(), blobPrefix+strconv.Itoa(w.Seed), blob(w.Seed))
}

// written returns the number of blobs, or an error if one has other bytes.
func (c *tally) written(ctx context.Context, _ struct{}) (n int, err error) {
	for it, err := range dohost.All[[]byte](ctx, c.st.Storage(), &dohost.ListOptions{Prefix: blobPrefix}) {
		if err != nil {
			return n, err
		}
		seed, err := strconv.Atoi(it.Key[len(blobPrefix):])
		if err != nil || !bytes.Equal(it.Value, blob(seed)) {
			return n, fmt.Errorf("blob %s has other bytes: %v", it.Key, err)
		}
		n++
	}
	return n, nil
}
