package dohosttest

import (
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// maxShrink bounds the runs to shorten a script.
const maxShrink = 400

// shrinkFor bounds the time to shorten a script, by the real clock.
var shrinkFor = 20 * time.Second

// numbers are the parts that two failures of one kind may differ in: amounts, times, clients.
var numbers = regexp.MustCompile(`[0-9][0-9.]*[a-zµ]*`)

// kind is the text of a failure without the numbers in it.
func kind(err error) string { return numbers.ReplaceAllString(err.Error(), "#") }

// shrink removes the parts of a script that its run does not need to fail in the same way.
// The note describes the returned script.
func (s *Simulation) shrink(t *testing.T, sc *script, got *trial) (least *script, tr *trial, note string) {
	if errors.Is(got.err, errStuck) {
		return sc, got, "not shortened, because each run takes long to fail; the script"
	}
	runs, stuck, until := 0, false, time.Now().Add(shrinkFor)
	at, spots := *sc, sc.spots()
	found := func() bool {
		if runs++; stuck || runs > maxShrink || time.Now().After(until) {
			return false
		}
		c := at
		c.endings = map[spot]dohost.EndMode{}
		for _, p := range spots {
			c.endings[p] = sc.endings[p]
		}
		tr := s.play(t, &c, false)
		stuck = errors.Is(tr.err, errStuck)
		if tr.err == nil || !sameKind(tr.err, got.err) {
			return false
		}
		least, got = &c, tr
		return true
	}
	if !found() {
		return sc, got, "not shortened, because the failure did not recur; the script"
	}
	for size := -1; size != len(at.actions)+len(spots); {
		size = len(at.actions) + len(spots)
		reduce(&at.actions, found)
		reduce(&spots, found)
	}
	return least, got, "the shortest script that fails in this way"
}

// reduce removes as many items as it can while ok holds: halves first, and single ones
// last.
func reduce[T any](items *[]T, ok func() bool) {
	for size := max(1, len(*items)/2); ; size /= 2 {
		for at := 0; at < len(*items); {
			all := *items
			*items = slices.Concat(all[:at], all[min(at+size, len(all)):])
			if !ok() {
				*items = all
				at += size
			}
		}
		if size <= 1 {
			return
		}
	}
}

// sameKind reports whether a run fails like another one: [errors.Is] says so, or the texts differ in numbers only.
func sameKind(err, like error) bool { return errors.Is(err, like) || kind(err) == kind(like) }
