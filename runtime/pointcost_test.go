package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

var full = flag.Bool("full", false, "compare the allocations of a call with those of a runtime without points, which the test compiles")

// callCost returns the allocations of a call that passes every place an event can pass
// without an alarm: it writes, in a transaction too, gives the turn up, and emits two
// outputs, without a policy at the points.
func callCost(t *testing.T) float64 {
	h := open(t, objectstore.NewMemFS(), Options{})
	call := func() {
		err := do(t.Context(), h, "a", "add", func(ctx context.Context, c *counter) error {
			_, err := c.add(ctx, 1)
			return errors.Join(err,
				Transaction(ctx, func(context.Context) error { return nil }),
				Await(ctx, func(ctx context.Context) error { return Visit(ctx, eviction.PlaceEffect) }),
				c.s.Emit(ctx, func(error) {}),
				c.s.Emit(ctx, func(error) {}))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	for range 100 {
		call()
	}
	return testing.AllocsPerRun(1000, call)
}

// TestCallAllocations prints the number that comparePoints compares.
func TestCallAllocations(t *testing.T) { t.Logf("a call allocates %v times", callCost(t)) }

// TestPointsAllocateNothingWithoutAPolicy passes points alone. With -full it also compares a call of this build with one of another
// build, where the points do nothing: then the code around the points allocates nothing for them either.
func TestPointsAllocateNothingWithoutAPolicy(t *testing.T) {
	h := open(t, objectstore.NewMemFS(), Options{})
	err := do(t.Context(), h, "a", "add", func(ctx context.Context, c *counter) error {
		ev := eventOf(ctx)
		for name, point := range map[string]func(){
			"at":     func() { ev.obj.at(ev, eviction.PlaceEffect) },
			"step":   func() { h.step(eviction.PlaceRecord) },
			"count":  func() { h.count(ev) },
			"callAt": func() { h.callAt(ctx, ev.obj.id(), ev.op, eviction.PlaceSend) },
		} {
			if n := testing.AllocsPerRun(1000, point); n != 0 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if *full {
		comparePoints(t)
	}
}

// comparePoints compiles the runtime with points that do nothing.
func comparePoints(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile("point.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, fn := range []string{
		"func (o *object) at(ev *event, p eviction.Place) {\n", "func (h *Host) step(p eviction.Place) {\n", "func (h *Host) count(ev *event) {\n",
		"func (h *Host) callAt(ctx context.Context, id ID, op string, p eviction.Place) {\n",
	} {
		if strings.Count(text, fn) != 1 {
			t.Fatalf("point.go does not have %q", fn)
		}
		text = strings.Replace(text, fn, fn+"\tif true {\n\t\treturn\n\t}\n", 1)
	}
	dir := t.TempDir()
	without, overlay := filepath.Join(dir, "point.go"), filepath.Join(dir, "overlay.json")
	path, err := filepath.Abs("point.go")
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: without}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(without, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-vet=off", "-overlay", overlay, "-run", "^TestCallAllocations$", "-count=1", "-v"}
	if invariants.Enabled {
		args = append(args, "-race") // like this build
	}
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	line := regexp.MustCompile(`a call allocates (\S+) times`)
	other := line.FindSubmatch(out)
	if err != nil || other == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	own, err := exec.Command(os.Args[0], "-test.run=^TestCallAllocations$", "-test.v").CombinedOutput()
	m := line.FindSubmatch(own)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, own)
	}
	with, werr := strconv.ParseFloat(string(m[1]), 64)
	less, lerr := strconv.ParseFloat(string(other[1]), 64)
	slack := 0.0
	if invariants.Enabled {
		slack = 1 // with the race detector, pools drop items at random
	}
	if werr != nil || lerr != nil || with > less+slack {
		t.Errorf("a call allocates %v times with points, %v without", with, less)
	}
}
