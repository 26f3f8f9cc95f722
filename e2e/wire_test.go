package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// examples is the number of examples in docs/wire.md, so that a missing one is noticed.
const examples = 23

// TestWireExamplesWereRecorded finds each example of docs/wire.md, an indented block, in
// one recorded exchange: the request with its status, and its frames in their order.
func TestWireExamplesWereRecorded(t *testing.T) {
	text, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	recorded := readGolden(t)
	before, pools, _ := strings.Cut(string(text), "\n## Pools\n") // package pool compares their answers
	_, after, _ := strings.Cut(pools, "\n## ")
	blocks := exampleBlocks(before + "\n## " + after)
	for _, block := range blocks {
		if !slices.ContainsFunc(recorded, func(r recording) bool { return slices.ContainsFunc(r.Wire, block.isOf) }) {
			t.Errorf("not in %s:\n%s", golden, strings.Join(block, "\n"))
		}
	}
	if len(blocks) != examples {
		t.Errorf("%d examples, want %d", len(blocks), examples)
	}
}

// block is an example: lines of a request and its status, of frames from the client (>) and from
// the server (<).
type block []string

func exampleBlocks(text string) (all []block) {
	var b block
	for _, line := range strings.Split(text+"\n", "\n") {
		line, indented := strings.CutPrefix(line, "    ")
		if indented {
			b = append(b, line)
		} else if b != nil {
			all, b = append(all, b), nil
		}
	}
	return all
}

func (b block) isOf(x exchange) bool {
	up, down := x.Up, x.Down
	if x.Body != "" || x.Answer != "" {
		up, down = []string{x.Body}, []string{strings.TrimSpace(x.Answer)}
	}
	for _, line := range b {
		var found bool
		if frame, ok := strings.CutPrefix(line, "> "); ok {
			up, found = after(up, frame)
		} else if frame, ok := strings.CutPrefix(line, "< "); ok {
			down, found = after(down, frame)
		} else {
			found = line == fmt.Sprintf("%s: %d", x.Request, x.Status)
		}
		if !found {
			return false
		}
	}
	return true
}

// after returns the frames after a frame.
func after(frames []string, frame string) ([]string, bool) {
	i := slices.Index(frames, frame)
	return frames[i+1:], i >= 0
}
