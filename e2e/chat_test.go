//go:build e2e

package e2e

import "testing"

// casesOfChat is how many there are of a conversation, so that none is lost unnoticed.
const casesOfChat = 11

// TestPublishedChat runs the cases of useAgentChat, with the AI SDK that each generation came with, in a
// browser.
func TestPublishedChat(t *testing.T) {
	browser := tool(t, "chromium", "chromium-browser", "google-chrome")
	install(t)
	bin := buildServer(t)
	c := startChrome(t, browser)
	t.Run("chat", func(t *testing.T) {
		for generation, version := range generations {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, "useAgentChat of "+version, bin, bundle(t, "chat", generation))
				s.chrome, s.shots = c, *shots
				runPage(t, s, generation)
				s.report(casesOfChat)
			})
		}
	})
}
