//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
)

const (
	objects = 2 * cells
	clients = 3 // of each node
)

// traffic is the clients, and their histories. The clients of a place send all requests to its node.
type traffic struct {
	t         *testing.T
	seed      uint64
	begun     time.Time
	http      *http.Client
	addresses [3]atomic.Pointer[string] // "" for an empty place
	names     [objects]string           // two for each cell
	histories [objects]history
	calls     atomic.Int64
	answers   [3][objects]atomic.Int64 // acknowledged additions, by the place of the client

	mu          sync.Mutex
	additions   [objects]map[string]addition // by id
	errors      map[string]int
	unavailable [objects]int // answers with the status 503 since the last check
}

// addition is a request that adds one to the total of an object.
type addition struct {
	from     int  // the object that calls, or the same one
	ran      bool // it may have run
	answered bool
}

func newTraffic(t *testing.T, seed uint64) *traffic {
	l := &traffic{
		t: t, seed: seed, begun: time.Now(), http: &http.Client{Timeout: longestWait, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}, errors: map[string]int{},
	}
	t.Cleanup(l.http.CloseIdleConnections)
	for o := range objects {
		l.additions[o] = map[string]addition{}
	}
	next := [cells]int{}
	for i, found := 0, 0; found < objects; i++ {
		name := fmt.Sprint("t", i)
		if cell := cluster.CellOf(dohost.ID{Class: string(tallies), Name: name}, cells); next[cell] < objects/cells {
			l.names[cell+cells*next[cell]] = name
			next[cell]++
			found++
		}
	}
	return l
}

// use changes the nodes that the clients call.
func (l *traffic) use(list [3]*node) {
	for i, n := range list {
		address := ""
		if n != nil {
			address = n.at
		}
		l.addresses[i].Store(&address)
	}
}

// The wait for an answer. After it the outcome is unknown. A client doubles its wait until the next answer, for a busy machine: a request
// that its node has passed on to a stopped one gets no answer for long.
const (
	firstWait   = 2 * time.Second
	longestWait = 32 * time.Second
)

// call calls a method of an object at a node, and records the call in the history of the object whose total the answer has. It reports
// whether the call was answered. An answer with the status 503 must have Retry-After.
func (l *traffic) call(ctx context.Context, wait time.Duration, place int, address string, object int, method string) bool {
	number := l.calls.Add(1)
	id := fmt.Sprint(number)
	in, counts, n := any(id), object, 1
	switch method {
	case "total":
		in, n = struct{}{}, 0
	case "forward":
		counts = (object + 1 + int(number)%(objects-1)) % objects
		in = chain{ID: id, To: l.names[counts]}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	begun, total := time.Since(l.begun), unknownTotal
	ran, err := call(ctx, l.http, address+"/objects/tally/"+l.names[object]+"/"+method, in, &total)
	ended := time.Since(l.begun)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		total = unknownTotal
		l.errors[fmt.Sprintf("%v, may have run: %v", withoutAddress(err), ran)]++
		unavailable, fault := isUnavailable(err)
		if unavailable {
			l.unavailable[object]++
		}
		if fault != nil {
			l.t.Error(fault)
		}
	}
	if ran {
		l.histories[counts].add(int(number), n, begun, ended, total)
	}
	if n == 0 {
		return err == nil
	}
	l.additions[counts][id] = addition{from: object, ran: ran, answered: err == nil}
	if err == nil {
		l.answers[place][counts].Add(1)
	}
	return err == nil
}

// withoutAddress returns the error of a request that differs in its addresses from those of others.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// drawn returns a method.
func drawn(r *rand.Rand) string {
	switch n := r.IntN(10); {
	case n < 2:
		return "total"
	case n < 4:
		return "forward"
	}
	return "add"
}

// start starts clients that call until stop, which waits for their answers.
func (l *traffic) start() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for i := range len(l.addresses) * clients {
		running.Go(func() {
			place, r := i%len(l.addresses), rand.New(rand.NewPCG(l.seed, uint64(l.calls.Load())+uint64(i)))
			for wait := firstWait; ; {
				begun, rest := time.Now(), 10*time.Millisecond
				if address := *l.addresses[place].Load(); address != "" && l.call(l.t.Context(), wait, place, address, r.IntN(objects), drawn(r)) {
					wait = firstWait
				} else if rest = 50 * time.Millisecond; time.Since(begun) >= wait {
					wait = min(2*wait, longestWait)
				}
				select {
				case <-done:
					return
				case <-l.t.Context().Done(): // the test has failed
					return
				case <-time.After(rest):
				}
			}
		})
	}
	return func() {
		close(done)
		running.Wait()
	}
}

// crowd has callers of the first objects, each with a number of acknowledged additions. It returns the additions per second.
func (l *traffic) crowd(objects, callers, calls int) float64 {
	begun := time.Now()
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			place, answered := i%len(l.addresses), 0
			for answered < calls && time.Since(begun) < clusterTime && l.t.Context().Err() == nil {
				if l.call(l.t.Context(), longestWait, place, *l.addresses[place].Load(), i%objects, "add") {
					answered++
				}
			}
			if answered < calls {
				l.t.Errorf("%d answers for one of %d callers of %d objects in %v", answered, callers, objects, clusterTime)
			}
		})
	}
	running.Wait()
	return float64(callers*calls) / time.Since(begun).Seconds()
}

// fill writes the blobs of some seeds to the first object.
func (l *traffic) fill(from, to int) {
	l.t.Helper()
	for seed := from; seed < to; seed++ {
		for limit := time.Now().Add(clusterTime); ; pause(l.t, limit, "a large write") {
			if _, err := l.write(0, 0, blobWrite{Seed: seed}); err == nil {
				break
			}
		}
	}
}

// write writes a blob to an object at a node.
func (l *traffic) write(place, object int, w blobWrite) (ran bool, err error) {
	return call(l.t.Context(), l.http, *l.addresses[place].Load()+"/objects/tally/"+l.names[object]+"/write", w, &struct{}{})
}

// address returns the address of a node.
func (l *traffic) address() (address string) {
	for i := 0; address == "" && i < len(l.addresses); i++ {
		address = *l.addresses[i].Load()
	}
	return address
}

// checkBlobs reads the blobs of an object.
func (l *traffic) checkBlobs(object, least, most int) {
	l.t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(l.t, limit, "a large read") {
		n := 0
		_, err := call(l.t.Context(), l.http, l.address()+"/objects/tally/"+l.names[object]+"/written", struct{}{}, &n)
		if err == nil {
			if n < least || n > most {
				l.t.Errorf("the object has %d blobs, want %d to %d", n, least, most)
			}
			return
		}
		if strings.Contains(err.Error(), "other bytes") {
			l.t.Fatal(err)
		}
	}
}

// awaitAnswers waits until each object has answered a client of each of the places.
func (l *traffic) awaitAnswers(places ...int) {
	l.t.Helper()
	var before [3][objects]int64
	for _, p := range places {
		for o := range objects {
			before[p][o] = l.answers[p][o].Load()
		}
	}
	for _, p := range places {
		for o := range objects {
			for limit := time.Now().Add(clusterTime); l.answers[p][o].Load() == before[p][o]; {
				pause(l.t, limit, fmt.Sprintf("an answer of object %s to clients of node %d", l.names[o], p))
			}
		}
	}
}

// sendLate sends two requests for each object to a node that is stopped, each on a connection of its own. It returns when the requests are in
// the buffers of these connections. answered waits for the answers.
func (l *traffic) sendLate(place int) (answered func()) {
	address := *l.addresses[place].Load()
	var sent, done sync.WaitGroup
	for object := range objects {
		for _, method := range []string{"total", "add"} {
			sent.Add(1)
			done.Go(func() {
				once := sync.OnceFunc(sent.Done)
				defer once() // it may fail earlier
				trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }}
				l.call(httptrace.WithClientTrace(l.t.Context(), trace), longestWait, place, address, object, method)
			})
		}
	}
	sent.Wait()
	return done.Wait
}

// spell is the time between two checks, as the clients have seen it.
type spell struct {
	gap         time.Duration // the longest time between two answers of an object
	unavailable [objects]int  // answers with the status 503
}

// check reads each object at each node, and checks the histories since the last check, while no client calls.
func (l *traffic) check(event string) (s spell) {
	l.t.Helper()
	calls := 0
	for o := range objects {
		last := 0
		for place := range l.addresses {
			address := *l.addresses[place].Load()
			if address == "" {
				continue
			}
			for limit := time.Now().Add(clusterTime); !l.call(l.t.Context(), longestWait, place, address, o, "total"); {
				pause(l.t, limit, "an answer of "+l.names[o])
			}
			h := &l.histories[o]
			last = h.ops[len(h.ops)-1].Output.(int)
		}
		h := &l.histories[o]
		calls += len(h.ops)
		s.gap = max(s.gap, h.gap())
		if err := h.verdict(last); err != nil {
			l.t.Errorf("%s: object %s: %v", event, l.names[o], err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.unavailable, l.unavailable = l.unavailable, [objects]int{}
	l.t.Logf("%s: %d calls; the longest time between two answers of an object: %v", event, calls, s.gap.Round(time.Millisecond))
	return s
}

// checkEffects waits until no call between objects is pending, and reports the faults of the effects.
func (l *traffic) checkEffects() {
	l.t.Helper()
	for limit := time.Now().Add(clusterTime); l.pending() > 0; {
		pause(l.t, limit, "the end of the calls between objects")
	}
	faults, sums := l.effects()
	for limit := time.Now().Add(longestWait); len(faults) > 0 && time.Now().Before(limit); faults, sums = l.effects() { // a late call may have begun
		pause(l.t, limit.Add(clusterTime), "the state of the objects")
	}
	for _, fault := range faults {
		l.t.Error(fault)
	}
	l.t.Logf("additions: %v", sums)
	for text, n := range l.errors {
		l.t.Logf("%d times %s", n, text)
	}
}

// effects returns the faults of the effects, and the numbers of additions. Each acknowledged addition has one effect, each that did not run
// has none, and each with an unknown outcome at most one. An object that calls counts the effects.
func (l *traffic) effects() (faults []string, sums map[string]int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	fault := func(text string, args ...any) { faults = append(faults, fmt.Sprintf(text, args...)) }
	var sent [objects]map[string]int
	var effects [objects]map[string]int
	for o := range objects {
		a := l.account(o)
		sent[o], effects[o] = a.Sent, a.Effects
		for id, n := range a.Effects {
			if add, made := l.additions[o][id]; n != 1 || !made || !add.ran {
				fault("addition %s to object %s has %d effects: %+v", id, l.names[o], n, add)
			}
		}
	}
	sums = map[string]int{}
	for o := range objects {
		for id, add := range l.additions[o] {
			n := effects[o][id]
			if add.answered && n == 0 {
				fault("addition %s to object %s was acknowledged, and has no effect", id, l.names[o])
			}
			if add.from != o {
				sent[add.from][l.names[o]] -= n
			}
			switch {
			case add.answered:
				sums["acknowledged"]++
			case add.ran:
				sums["unknown"]++
				sums["effects of unknown"] += n
			default:
				sums["not run"]++
			}
		}
	}
	for o := range objects {
		for to, n := range sent[o] {
			if n != 0 {
				fault("object %s counts %d calls of object %s more than have had an effect", l.names[o], n, to)
			}
		}
	}
	return faults, sums
}

// pending is the number of objects with calls that are not completed.
func (l *traffic) pending() (n int) {
	for o := range objects {
		if l.account(o).Pending > 0 {
			n++
		}
	}
	return n
}

// account returns the state of an object.
func (l *traffic) account(object int) (a account) {
	l.t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(l.t, limit, "the state of "+l.names[object]) {
		for place := range l.addresses {
			if address := *l.addresses[place].Load(); address != "" {
				if _, err := call(l.t.Context(), l.http, address+"/objects/tally/"+l.names[object]+"/account", struct{}{}, &a); err == nil {
					return a
				}
			}
		}
	}
}
