package dohosttest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// subHistory selects a history of a workload, perhaps with fewer clients and calls, or a history
// without some of its calls and endings.
type subHistory struct {
	seed           uint64
	clients, calls int
	all            bool       // ignore the rest
	only           []callName // the calls to make
	endings        []int      // the endings to make, of those drawn, from 0
}

// fullHistory selects the whole history of a seed.
func (x *workload) fullHistory(seed uint64) subHistory {
	return subHistory{seed: seed, clients: x.clients, calls: x.calls, all: true}
}

func (p subHistory) has(c callName) bool { return p.all || slices.Contains(p.only, c) }

func (p subHistory) hasEnding(n int) bool { return p.all || slices.Contains(p.endings, n) }

// String formats the sub-history for the flag: seed:n,clients:n,calls:n and, unless all is set,
// only:client.call+client.call and endings:n+n.
func (p subHistory) String() string {
	text := fmt.Sprintf("seed:%d,clients:%d,calls:%d", p.seed, p.clients, p.calls)
	if p.all {
		return text
	}
	var only, endings []string
	for _, c := range p.only {
		only = append(only, fmt.Sprintf("%d.%d", c.client, c.n))
	}
	for _, n := range p.endings {
		endings = append(endings, strconv.Itoa(n))
	}
	return fmt.Sprintf("%s,only:%s,endings:%s", text, strings.Join(only, "+"), strings.Join(endings, "+"))
}

// parseSubHistory parses the result of String. A seed alone means the workload's own history.
func (x *workload) parseSubHistory(text string) (subHistory, error) {
	p := x.fullHistory(0)
	for i, word := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(word, ":")
		if (i == 0) != (name == "seed") {
			return p, fmt.Errorf("%q: want seed:number first", text)
		}
		var err error
		switch name {
		case "seed":
			p.seed, err = strconv.ParseUint(value, 10, 64)
		case "clients":
			p.clients, err = strconv.Atoi(value)
		case "calls":
			p.calls, err = strconv.Atoi(value)
		case "only":
			p.all = false
			p.only, err = list(value, parseCall)
		case "endings":
			p.all = false
			p.endings, err = list(value, strconv.Atoi)
		default:
			err = fmt.Errorf("want seed, clients, calls, only or endings")
		}
		if err != nil {
			return p, fmt.Errorf("%q: %w", word, err)
		}
	}
	return p, nil
}

func parseCall(text string) (c callName, err error) {
	_, err = fmt.Sscanf(text, "%d.%d", &c.client, &c.n)
	return c, err
}

func list[T any](text string, parse func(string) (T, error)) (items []T, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, "+") {
		item, err := parse(word)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// smallRuns is how many histories of each small size are tried after a large one was not
// linearizable.
const smallRuns = 100

// searchSmall searches for a small history that is not linearizable. It returns nil if it finds
// none.
func (x *workload) searchSmall(try func(subHistory) *history) *history {
	until := time.Now().Add(x.checkTimeout)
	for calls := 1; calls < min(x.calls, 5); calls++ {
		for i := range uint64(smallRuns) {
			if time.Now().After(until) {
				return nil
			}
			p := x.fullHistory(x.seed + i)
			p.clients, p.calls = min(p.clients, 2), calls
			h := try(p)
			if h.noOrder() {
				return h
			}
			if errors.Is(h.err, errStuck) {
				return nil
			}
		}
	}
	return nil
}

// shrink omits calls and endings of a history, as long as it is not linearizable.
func shrink(h *history, try func(subHistory) *history) *history {
	runs, stuck, until := 0, false, time.Now().Add(h.x.checkTimeout)
	at := h.sub
	at.all = false
	for _, c := range h.calls {
		if c.outcome != notMade {
			at.only = append(at.only, c.name)
		}
	}
	for n := range h.drawn {
		at.endings = append(at.endings, n)
	}
	found := func() bool {
		if runs++; stuck || runs > maxShrink || time.Now().After(until) {
			return false
		}
		less := try(at)
		stuck = errors.Is(less.err, errStuck)
		if less.noOrder() {
			h = less
			return true
		}
		return false
	}
	for size := -1; size != len(at.only)+len(at.endings); {
		size = len(at.only) + len(at.endings)
		reduce(&at.only, found)
		reduce(&at.endings, found)
	}
	return h
}
