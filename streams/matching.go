package streams

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/hostof"
)

// directory has the subscriptions of a host in memory, so that an append to a stream without subscriptions costs nothing.
//
// A stream misses no subscription. A subscription is in the directory before it reads the tails of the streams that exist (backfill), and a
// stream looks into the directory in the event of each append. So the append's event finds the subscription, or it precedes the event that
// reads the tail, which then includes the append. After a restart, a stream looks into the directory when it has all stored subscriptions.
//
// A subscription whose constructor fails, since its rows cannot be read, is not in the directory: it must not stop the appends to all
// streams. Its next incarnation enters it.
type directory struct {
	loading chan struct{} // has room for the token of the event that loads
	calls   chan struct{} // has room for the calls of subscriptions that are in progress

	mu       sync.Mutex
	loaded   bool
	version  uint64               // counts the changes
	entries  []*subscriber        // in order of ID; the slice does not change
	names    map[uint64]int       // the entries that name a stream, by the hash of its path
	expected map[string]*expected // by subscription
	key      *signingKey          // nil: not read yet
}

func newDirectory() *directory {
	return &directory{
		loading: make(chan struct{}, 1), calls: make(chan struct{}, maxHostNotices), names: map[uint64]int{}, expected: map[string]*expected{},
	}
}

// subscriber is the entry of a subscription. It does not change.
type subscriber struct {
	id, instance string
	pattern      *pattern
	explicit     map[uint64]bool // hashes of paths; a notice for another path with the hash of one has no effect
}

// matches reports whether the subscription has a stream, whose path has these segments and this hash.
func (s *subscriber) matches(path string, segments []string, hash uint64) bool {
	return s.explicit[hash] || s.pattern.matches(path, segments)
}

// pattern is the pattern of a subscription. A nil pattern matches nothing.
type pattern struct {
	segments   []string
	wakeStream string // does not match: each wake would cause another one
}

// pattern returns the pattern of the configuration.
func (c *config) pattern() *pattern {
	if c.Pattern == "" {
		return nil
	}
	return &pattern{strings.Split(c.Pattern, "/"), c.WakeStream}
}

// matches reports whether the pattern matches a path, which has these segments.
func (p *pattern) matches(path string, segments []string) bool {
	return p != nil && path != p.wakeStream && globMatch(p.segments, segments)
}

// directories are the directories of the hosts that have the classes of one call of Classes.
type directories struct {
	mu     sync.Mutex
	byHost map[weak.Pointer[dohost.Host]]*directory
}

// hostOf returns the host of an object.
func hostOf(st *dohost.State) *dohost.Host { return hostof.State(st).(*dohost.Host) }

// of returns the directory of a host.
func (d *directories) of(h *dohost.Host) *directory {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := weak.Make(h)
	if found := d.byHost[key]; found != nil {
		return found
	}
	made := newDirectory()
	d.byHost[key] = made
	runtime.AddCleanup(h, d.forget, key)
	return made
}

func (d *directories) forget(key weak.Pointer[dohost.Host]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byHost, key)
}

// isLoaded reports whether load has succeeded.
func (d *directory) isLoaded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded
}

// load enters the stored subscriptions, once for a host. The first call gives up the turn, and so do those that wait for it.
func (d *directory) load(ctx context.Context, h *dohost.Host) error {
	if d.isLoaded() {
		return nil
	}
	return dohost.Await(ctx, func(ctx context.Context) error {
		select {
		case d.loading <- struct{}{}:
			defer func() { <-d.loading }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if d.isLoaded() {
			return nil
		}
		for id, err := range h.Objects(ctx, string(Subscriptions), "") {
			if errors.Is(err, dohost.ErrDamaged) {
				continue // the objects outside of the damaged block follow
			}
			if err == nil {
				err = d.wake(ctx, h, id)
			}
			if err != nil {
				return err
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.loaded = true
		return nil
	})
}

// wake wakes a subscription, whose constructor enters it.
func (d *directory) wake(ctx context.Context, h *dohost.Host, id dohost.ID) error {
	err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		return dohost.CallBare(ctx, Subscriptions.Get(h, id.Name), (*Subscription).enter)
	})
	for _, kind := range []error{dohost.ErrFenced, dohost.ErrOverloaded, dohost.ErrClosed} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return context.Cause(ctx) // the host reports the error of a constructor
}

// put enters a subscription, in place of one with its ID.
func (d *directory) put(s *subscriber) {
	d.change(s.id, func(list []*subscriber, at int, found bool) []*subscriber {
		if found {
			d.countLocked(list[at], -1)
			list[at] = s
		} else {
			list = slices.Insert(list, at, s)
		}
		d.countLocked(s, 1)
		return list
	})
}

// remove removes an instance of a subscription.
func (d *directory) remove(id, instance string) {
	d.change(id, func(list []*subscriber, at int, found bool) []*subscriber {
		if !found || list[at].instance != instance {
			return nil
		}
		d.countLocked(list[at], -1)
		delete(d.expected, id)
		return slices.Delete(list, at, at+1)
	})
}

// change replaces the entries by the result of a function of a copy, unless it is nil.
func (d *directory) change(id string, f func(list []*subscriber, at int, found bool) []*subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := d.findLocked(id)
	if list := f(slices.Clone(d.entries), at, found); list != nil {
		d.entries = list
		d.version++
	}
}

func (d *directory) findLocked(id string) (at int, found bool) {
	return slices.BinarySearchFunc(d.entries, id, func(s *subscriber, id string) int { return strings.Compare(s.id, id) })
}

// countLocked adds n to the numbers of the entries that name the streams of s.
func (d *directory) countLocked(s *subscriber, n int) {
	for hash := range s.explicit {
		if d.names[hash] += n; d.names[hash] == 0 {
			delete(d.names, hash)
		}
	}
}

// crowded reports whether a stream would have too many subscriptions with those that s adds: its pattern if it is new, and its names. Each
// stream that several patterns match is one that the newest of them has in common with the others. So no stream has more than
// maxPerStream subscriptions by patterns, and as many by name; some more if several are created at the same time.
func (d *directory) crowded(s *subscriber) bool {
	d.mu.Lock()
	at, found := d.findLocked(s.id)
	entries, full := d.entries, false
	for hash := range s.explicit {
		full = full || d.names[hash] >= maxPerStream && !(found && entries[at].explicit[hash])
	}
	d.mu.Unlock()
	if full || found || s.pattern == nil {
		return full
	}
	n := 0
	for _, other := range entries {
		if other.pattern != nil && overlap(s.pattern.segments, other.pattern.segments) {
			n++
		}
	}
	return n >= maxPerStream
}

// count returns the number of subscriptions, without the one with an ID.
func (d *directory) count(except string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.entries)
	if _, found := d.findLocked(except); found {
		n--
	}
	return n
}

// match returns the subscriptions of a stream in order of ID, and the version of the directory. It returns last if the version is since.
func (d *directory) match(path string, since uint64, last []*subscriber) ([]*subscriber, uint64) {
	d.mu.Lock()
	entries, version := d.entries, d.version
	d.mu.Unlock()
	if version == since {
		return last, since
	}
	var found []*subscriber
	segments, hash := strings.Split(path, "/"), hashOf(path)
	for _, s := range entries {
		if s.matches(path, segments, hash) {
			found = append(found, s)
		}
	}
	return found, version
}

var pathSeed = maphash.MakeSeed()

func hashOf(path string) uint64 { return maphash.String(pathSeed, path) }

// globMatch reports whether a pattern matches a path, both as segments: "*" matches one segment and "**" any number of them.
func globMatch(pattern, path []string) bool {
	// match[i] is whether the pattern so far matches the first i segments.
	var few [16]bool // most paths are short
	match := append(few[:0], make([]bool, len(path)+1)...)
	match[0] = true
	for _, segment := range pattern {
		if segment == "**" {
			for i := 1; i <= len(path); i++ {
				match[i] = match[i] || match[i-1]
			}
			continue
		}
		for i := len(path); i > 0; i-- {
			match[i] = match[i-1] && (segment == "*" || segment == path[i-1])
		}
		match[0] = false
	}
	return match[len(path)]
}

// overlap reports whether there is a path that both patterns match.
func overlap(a, b []string) bool {
	// match[i] is whether a path matches the part of a so far and the first i segments of b.
	match := make([]bool, len(b)+1)
	match[0] = true
	for i := 1; i <= len(b) && b[i-1] == "**"; i++ {
		match[i] = true
	}
	for _, x := range a {
		last := match[0] // of the previous part of a, for one segment of b less
		match[0] = match[0] && x == "**"
		for i, y := range b {
			same := match[i+1] // of the previous part of a
			if x == "**" || y == "**" {
				match[i+1] = same || match[i]
			} else {
				match[i+1] = last && (x == "*" || y == "*" || x == y)
			}
			last = same
		}
	}
	return match[len(b)]
}

// validPattern reports whether a pattern is a valid path of a few segments, and its stars are whole segments.
func validPattern(pattern string) bool {
	if strings.Count(pattern, "/") >= maxSegments {
		return false
	}
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.Contains(segment, "*") && segment != "*" && segment != "**" {
			return false
		}
	}
	return len(pattern) <= maxPath && validPath(pattern)
}
