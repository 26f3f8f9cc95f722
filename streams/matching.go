package streams

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/dohost/dohost"
)

// directory has the subscriptions of a host in memory, so that an append to a stream without subscriptions costs nothing.
//
// A stream misses no subscription. A subscription is in the directory before it reads the tails of the streams that exist (backfill), and a
// stream looks into the directory in the event of each append. So the append's event finds the subscription, or it precedes the event that
// reads the tail, which then includes the append. After a restart, a stream looks into the directory when it has all stored subscriptions.
type directory struct {
	mu      sync.Mutex
	loaded  bool
	version uint64                 // counts the changes
	entries map[string]*subscriber // by the ID of the subscription
	key     *signingKey            // nil: not read yet
}

// subscriber is the entry of a subscription. It does not change.
type subscriber struct {
	id, instance string
	pattern      []string        // segments; nil: none
	explicit     map[string]bool // paths
	wakeStream   string          // its pattern does not match it: each wake would cause another one
}

// directories are those of the hosts that have the classes of one call of Classes.
type directories struct {
	mu     sync.Mutex
	byHost map[weak.Pointer[dohost.Host]]*directory
}

// of returns the directory of a host.
func (d *directories) of(h *dohost.Host) *directory {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := weak.Make(h)
	if found := d.byHost[key]; found != nil {
		return found
	}
	made := &directory{entries: map[string]*subscriber{}}
	d.byHost[key] = made
	runtime.AddCleanup(h, d.forget, key)
	return made
}

func (d *directories) forget(key weak.Pointer[dohost.Host]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byHost, key)
}

// load enters the stored subscriptions, once for a host.
func (d *directory) load(ctx context.Context, h *dohost.Host) error {
	d.mu.Lock()
	loaded := d.loaded
	d.mu.Unlock()
	if loaded {
		return nil
	}
	for id, err := range h.Objects(ctx, string(Subscriptions), "") {
		if err != nil {
			return err
		}
		// The constructor enters it.
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			return dohost.CallBare(ctx, Subscriptions.Get(h, id.Name), (*Subscription).enter)
		})
		if err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loaded = true
	return nil
}

// put enters a subscription, in place of one with its ID.
func (d *directory) put(s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version++
	d.entries[s.id] = s
}

// remove removes an instance of a subscription.
func (d *directory) remove(id, instance string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.entries[id]; found != nil && found.instance == instance {
		d.version++
		delete(d.entries, id)
	}
}

// count returns the number of subscriptions, without the one with an ID.
func (d *directory) count(except string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.entries)
	if d.entries[except] != nil {
		n--
	}
	return n
}

// match returns the subscriptions of a stream in order of ID, and the version of the directory. It returns last if the version is since.
func (d *directory) match(path string, since uint64, last []*subscriber) ([]*subscriber, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.version == since {
		return last, since
	}
	var found []*subscriber
	for _, id := range slices.Sorted(maps.Keys(d.entries)) {
		if s := d.entries[id]; s.explicit[path] || s.matches(path) {
			found = append(found, s)
		}
	}
	return found, d.version
}

// matches reports whether the pattern of a subscription matches a path.
func (s *subscriber) matches(path string) bool {
	return s.pattern != nil && path != s.wakeStream && globMatch(s.pattern, strings.Split(path, "/"))
}

// globMatch reports whether a pattern matches a path, both as segments: "*" matches one segment and "**" any number of them.
func globMatch(pattern, path []string) bool {
	// match[i] is whether the pattern so far matches the first i segments.
	match := make([]bool, len(path)+1)
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

// validPattern reports whether a pattern is a valid path, and its stars are whole segments.
func validPattern(pattern string) bool {
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.Contains(segment, "*") && segment != "*" && segment != "**" {
			return false
		}
	}
	return len(pattern) <= maxPath && validPath(pattern)
}
