package recovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

// fenceHost is a host for measurements that fence one worker at a time and call it again.
type fenceHost struct {
	*dohost.Host
	objects int
	out     *book
	steps   int // completed steps
}

func openFenced(dir string, objects int) (*fenceHost, error) {
	out, err := openBook(dir)
	if err != nil {
		return nil, err
	}
	h, err := dohost.Open(filepath.Join(dir, storeFolder), &dohost.Options{IdleAfter: -1}, class(out))
	if err != nil {
		return nil, errors.Join(err, out.f.Close())
	}
	return &fenceHost{Host: h, objects: objects, out: out}, nil
}

func (f *fenceHost) close() error { return errors.Join(f.Close(), f.out.f.Close()) }

// fence fences objects that were called just before.
func (f *fenceHost) fence(ctx context.Context, seed uint64, times int) (took []time.Duration, err error) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for range times {
		w := workers.Get(f, name(draw.IntN(f.objects)))
		if _, err := dohost.Call(ctx, w, (*worker).stepCount, 0); err != nil { // it is alive
			return nil, err
		}
		d, err := f.fenceAndCall(ctx, w)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// fenceIdle fences objects that were idle for a while. All rest concurrently, and then each is fenced once;
// if that is not enough, they rest again.
func (f *fenceHost) fenceIdle(
	ctx context.Context, seed uint64, times int, rest time.Duration,
) (took []time.Duration, err error) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for len(took) < times {
		for i := range f.objects {
			if _, err := dohost.Call(ctx, workers.Get(f, name(i)), (*worker).stepCount, 0); err != nil { // it is alive
				return nil, err
			}
		}
		time.Sleep(rest)
		for _, i := range draw.Perm(f.objects)[:min(f.objects, times-len(took))] {
			d, err := f.fenceAndCall(ctx, workers.Get(f, name(i)))
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
	}
	return took, nil
}

// fenceAndCall fences an object and calls it. It returns the time from the fence to the first line of the next
// incarnation's method.
func (f *fenceHost) fenceAndCall(ctx context.Context, w dohost.Stub[worker]) (took time.Duration, err error) {
	began := time.Now()
	if !f.Evict(w.ID(), dohost.EndFence) {
		return 0, fmt.Errorf("%v was not alive", w.ID())
	}
	at, err := dohost.Call(ctx, w, (*worker).step, 0)
	if err != nil {
		return 0, err
	}
	f.steps++
	return at.Sub(began), nil
}

// callAll calls each worker once, in a host that was just opened: the store's caches are empty.
func (f *fenceHost) callAll(ctx context.Context) (took []time.Duration, err error) {
	for i := range f.objects {
		began := time.Now()
		at, err := dohost.Call(ctx, workers.Get(f, name(i)), (*worker).step, 0)
		if err != nil {
			return nil, err
		}
		f.steps++
		took = append(took, at.Sub(began))
	}
	return took, nil
}

// underLoad runs fn concurrently with callers of other objects, each in a closed loop.
func (f *fenceHost) underLoad(ctx context.Context, callers int, fn func() error) error {
	ctx, stop := context.WithCancel(ctx)
	var calls atomic.Int64
	ended := make(chan error, callers)
	for c := range callers {
		go func() {
			w := workers.Get(f, fmt.Sprintf("load%d", c))
			for ctx.Err() == nil {
				if _, err := dohost.Call(context.WithoutCancel(ctx), w, (*worker).step, 0); err != nil {
					ended <- err
					return
				}
				calls.Add(1)
			}
			ended <- nil
		}()
	}
	err := fn()
	stop()
	for range callers {
		err = errors.Join(err, <-ended)
	}
	var counted int64
	for c := range callers {
		n, cerr := dohost.Call(context.WithoutCancel(ctx), workers.Get(f, fmt.Sprintf("load%d", c)), (*worker).stepCount, 0)
		err, counted = errors.Join(err, cerr), counted+int64(n)
	}
	if err == nil && counted != calls.Load() {
		err = fmt.Errorf("the load has counted %d calls, and made %d", counted, calls.Load())
	}
	return err
}

// verify compares the steps that new incarnations report with those that were made.
func (f *fenceHost) verify(ctx context.Context) error {
	sum := 0
	for i := range f.objects {
		w := workers.Get(f, name(i))
		f.Evict(w.ID(), dohost.EndFence)
		n, err := dohost.Call(ctx, w, (*worker).stepCount, 0)
		if err != nil {
			return err
		}
		sum += n
	}
	if sum != f.steps {
		return fmt.Errorf("the objects have taken %d steps, want %d", sum, f.steps)
	}
	return nil
}
