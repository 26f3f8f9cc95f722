//go:build e2e

package e2e

import (
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/dohost/dohost/internal/transcript"
)

// casesOfChat is the number of cases of a conversation, so that a missing one is noticed.
const casesOfChat = 13

// TestChatClientsAsPublished runs the cases of useAgentChat, with the AI SDK of each generation, in a browser, and
// compares the clients' frames with the recordings.
func TestChatClientsAsPublished(t *testing.T) {
	browser := tool(t, "chromium", "chromium-browser", "google-chrome")
	install(t)
	bin := buildServer(t)
	c := startChrome(t, browser)
	var mu sync.Mutex
	sent := map[string][]string{}
	t.Run("chat", func(t *testing.T) {
		for generation, version := range generations {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, "useAgentChat of "+version, bin, bundle(t, "chat", generation))
				s.chrome, s.shots = c, *shots
				runPage(t, s, generation)
				frames := clientFrames(s.report(casesOfChat))
				mu.Lock()
				defer mu.Unlock()
				sent[version] = frames
			})
		}
	})
	if !t.Failed() {
		compareChat(t, sent)
	}
}

// clientFrames returns the frames of the clients, each once.
func clientFrames(all []recording) []string {
	sent := map[string]bool{}
	for _, r := range all {
		for _, x := range r.Wire {
			for _, f := range x.Up {
				if transcript.Sent(f) {
					sent[transcript.Frame(f)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(sent))
}

// compareChat compares the recordings of conversations, or rewrites them.
func compareChat(t *testing.T, got map[string][]string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(goldenChat, []byte(render(got)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var want map[string][]string
	readJSON(t, goldenChat, &want)
	for _, version := range generations {
		frames := got[version]
		for _, f := range frames {
			if !slices.Contains(want[version], f) {
				t.Errorf("%s sends what is not in %s; -update rewrites it\n%s", version, goldenChat, f)
			}
		}
		for _, f := range want[version] {
			if !slices.Contains(frames, f) {
				t.Errorf("%s does not send what is in %s\n%s", version, goldenChat, f)
			}
		}
	}
}
