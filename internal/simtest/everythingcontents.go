package simtest

import (
	"context"

	"github.com/dohost/dohost"
)

// contents is the whole content of a featureObject.
type contents struct {
	Keys map[string]int
	Paid map[int]bool
	Open []int // unpaid sales by the index
	// Feed is the number of its entries, and Gaps whether their offsets have gaps.
	Feed  int
	Gaps  bool
	Alarm bool
}

func (c *featureObject) contents(ctx context.Context, _ none) (found contents, err error) {
	found.Keys, found.Paid = map[string]int{}, map[int]bool{}
	for it, err := range dohost.All[int](ctx, c.store, nil) {
		if err != nil {
			return found, err
		}
		found.Keys[it.Key] = it.Value
	}
	for row, err := range sales.All(ctx, c.store, nil) {
		if err != nil {
			return found, err
		}
		found.Paid[row.Value.N] = row.Value.Paid
	}
	open, err := sales.List(ctx, c.store, &dohost.Query[sale]{Index: "paid", Prefix: dohost.KeyOf(false)})
	if err != nil {
		return found, err
	}
	for _, row := range open {
		found.Open = append(found.Open, row.Value.N)
	}
	if found.Feed, found.Gaps, err = c.feed(ctx); err != nil {
		return found, err
	}
	_, found.Alarm, err = c.st.GetAlarm(ctx)
	return found, err
}

func (c *featureObject) feed(ctx context.Context) (n int, gaps bool, err error) {
	start, err := salesFeed.Start(ctx, c.store)
	if err != nil {
		return 0, false, err
	}
	changes, err := salesFeed.Read(ctx, c.store, start, 0)
	for i, ch := range changes {
		gaps = gaps || ch.Position.Offset != start.Offset+uint64(i+1)
	}
	return len(changes), gaps, err
}

// wantContents returns the content of a featureObject after step n, and after the alarm of that
// step.
func wantContents(n int) contents {
	want := contents{Keys: map[string]int{"n": n, "hint": n, "delivered": n}, Paid: map[int]bool{}, Open: []int{n}}
	for i := max(1, n-keptSteps+1, n-n%clearEvery); i <= n; i++ {
		want.Keys[stepKey(i)] = i
		want.Paid[i] = i < n
	}
	// The entries since the last DeleteAll: each step inserts a sale, pays the last one,
	// and deletes one that it no longer keeps.
	entries := 0
	for i := max(1, n-n%clearEvery); i <= n; i++ {
		entries++
		if i%clearEvery > 0 && i > 1 {
			entries++
		}
		if old := i - keptSteps; old >= max(1, n-n%clearEvery) {
			entries++
		}
	}
	want.Feed = min(entries, salesFeed.Keep)
	return want
}
