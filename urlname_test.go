package dohost_test

import (
	"testing"

	"github.com/dohost/dohost"
)

// TestURLName has names as the Agents SDK writes them in URLs.
func TestURLName(t *testing.T) {
	for name, want := range map[string]string{
		"counter": "counter", "ChatRoom": "chat-room", "XMLParserAgent": "x-m-l-parser-agent", "MY_AGENT": "my-agent",
		"MCP": "mcp", "my_agent": "my-agent", "Agent_": "agent", "roomÄ": "room-ä", "v2": "v2",
	} {
		if got := dohost.URLName(name); got != want {
			t.Errorf("URLName(%q) = %q, want %q", name, got, want)
		}
	}
}
