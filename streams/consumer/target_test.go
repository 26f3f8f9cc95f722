package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

const counters dohost.Namespace[counter] = "counter"

// counter counts the messages that it takes.
type counter struct {
	state *dohost.State
	n     int
}

func (c *counter) storage() *dohost.Storage { return c.state.Storage() }

var errNoPaper = errors.New("no paper")

func (c *counter) take(_ context.Context, b *Batch) error {
	if c.n += len(b.Messages); c.n == 13 {
		return errNoPaper
	}
	return nil
}

// TestTargetTakesBatchAtItsPosition passes batches from several positions: only one that begins at the position of the object has an effect.
func TestTargetTakesBatchAtItsPosition(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), nil, dohost.Bind(counters, func(_ context.Context, st *dohost.State) (*counter, error) {
		return &counter{state: st}, nil
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	of := To(counters, func(string) string { return "a" }, (*counter).storage, (*counter).take)
	at := func(offset string, skip int64) storedPosition { return storedPosition{position{offset, skip}, true} }
	messages := []json.RawMessage{json.RawMessage("1"), json.RawMessage("2")}
	for _, c := range []struct {
		from  storedPosition
		next  storedPosition
		want  storedPosition // afterwards
		taken int
	}{
		{at("1", 0), at("2", 0), storedPosition{}, 0},
		{storedPosition{}, at("-1", 2), at("-1", 2), 2},
		{storedPosition{}, at("5", 0), at("-1", 2), 2},
		{at("-1", 0), at("5", 0), at("-1", 2), 2},
		{at("-1", 2), at("5", 0), at("5", 0), 4},
		{at("-1", 2), at("5", 0), at("5", 0), 4},
		{at("5", 0), at("7", 0), at("7", 0), 6},
	} {
		batch := Batch{Subscription: "s", Stream: "x", Messages: messages}
		got, err := of.take(t.Context(), h, "a", &taking{Batch: batch, From: c.from, Next: c.next.At})
		if err != nil || got != c.want {
			t.Errorf("from %v to %v: %v, %v; want %v", c.from, c.next, got, err, c.want)
		}
		stored, err := of.at(t.Context(), h, "a", positionKey("s", "x"))
		if err != nil || stored != c.want {
			t.Errorf("from %v to %v: %v is stored, %v; want %v", c.from, c.next, stored, err, c.want)
		}
		if err := counters.Get(h, "a").Do(t.Context(), func(_ context.Context, o *counter) error {
			if o.n != c.taken {
				t.Errorf("from %v to %v: the object has taken %d messages, want %d", c.from, c.next, o.n, c.taken)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	var listed []Position
	if err := counters.Get(h, "a").Do(t.Context(), func(ctx context.Context, o *counter) error {
		for p, err := range Positions(ctx, o.storage()) {
			if err != nil || p.Updated.IsZero() {
				t.Errorf("the position is of %v, %v", p.Updated, err)
			}
			p.Updated = time.Time{}
			listed = append(listed, p)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if want := []Position{{Subscription: "s", Stream: "x", Offset: "7"}}; !slices.Equal(listed, want) {
		t.Errorf("the positions are %v, want %v", listed, want)
	}
	if other, err := of.at(t.Context(), h, "a", positionKey("s", "y")); err != nil || other.Known {
		t.Errorf("the position in another stream is %v, %v", other, err)
	}
	failing := Batch{Subscription: "s", Stream: "x", Messages: make([]json.RawMessage, 7)}
	if _, err := of.take(t.Context(), h, "a", &taking{Batch: failing, From: at("7", 0), Next: position{"8", 0}}); !errors.Is(err, errNoPaper) {
		t.Errorf("take returned %v", err)
	}
	if stored, err := of.at(t.Context(), h, "a", positionKey("s", "x")); err != nil || stored != at("7", 0) {
		t.Errorf("after a failure %v is stored, %v", stored, err)
	}
}

// TestErrorsNamePackageOnce has the errors that contain another one: their texts begin with the name of the package, and name it once.
func TestErrorsNamePackageOnce(t *testing.T) {
	fenced := &serverError{409, "FENCED", "the wake is over"}
	const text = `the server answered with the status 409, code "FENCED": "the wake is over"`
	stale := endOfWake(fenced)
	if !errors.Is(stale, agent.ErrWakeStale) || stale.Error() != "consumer: "+text {
		t.Errorf("the end of a wake is %q", stale)
	}
	if e, ok := errors.AsType[*serverError](stale); !ok || e != fenced {
		t.Errorf("the end of a wake has the response %v", e)
	}
	other := &serverError{409, "INVALID_OFFSET", ""}
	if err := endOfWake(other); errors.Is(err, agent.ErrWakeStale) || err != error(other) {
		t.Errorf("another error is %v", err)
	}
	for err, want := range map[error]string{fenced: text, errNoPaper: "no paper"} {
		if got := (&streamError{"a", err}).Error(); got != `consumer: stream "a": `+want {
			t.Errorf("an error of a stream is %q", got)
		}
	}
}
