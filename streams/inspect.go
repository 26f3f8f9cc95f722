package streams

import (
	"context"
	"fmt"
	"iter"

	"github.com/dohost/dohost"
)

// The kinds of the items that operators see: see dohost.Handlers.OnInspect.
const (
	detailProducer = "producer" // of a stream
	detailLink     = "link"     // of a subscription
)

// inspectStream lists the producers of a stream.
func inspectStream(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return resources(&producers, v, "", func(p producer) dohost.Resource {
		return dohost.Resource{
			Kind: detailProducer, ID: p.Last.ID, Text: fmt.Sprintf("epoch %d, the last request is %d", p.Last.Epoch, p.Last.Seq),
			Counts: map[string]int64{"epoch": p.Last.Epoch, "seq": p.Last.Seq},
		}
	})
}

// inspectSubscription lists the streams of a subscription with their cursors: those with pending work, from the oldest work on,
// and then the others.
func inspectSubscription(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	list := func(index string, pending bool) iter.Seq2[dohost.Resource, error] {
		return resources(&links, v, index, func(l link) dohost.Resource {
			i := l.info()
			if i.Pending != pending {
				return dohost.Resource{}
			}
			state := "idle"
			if pending {
				state = "pending"
			}
			return dohost.Resource{
				Kind: detailLink, ID: l.Path, State: state, Text: fmt.Sprintf("%s, from %s to %s", i.LinkType, i.Acked, i.Tail),
				Fields: map[string]string{"link_type": i.LinkType, "acked_offset": i.Acked, "tail_offset": i.Tail},
			}
		})
	}
	return func(yield func(dohost.Resource, error) bool) {
		for _, items := range []iter.Seq2[dohost.Resource, error]{list("pending", true), list("", false)} {
			for r, err := range items {
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// resources lists the rows of a collection, or of an index of it. If f returns no kind for a row, the row is omitted.
func resources[T any](c *dohost.Collection[T], v *dohost.Snapshot, index string, f func(T) dohost.Resource) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		for row, err := range c.Scan(v, &dohost.Query[T]{Index: index}) {
			var r dohost.Resource
			if err == nil {
				if r = f(row.Value); r.Kind == "" {
					continue
				}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}
