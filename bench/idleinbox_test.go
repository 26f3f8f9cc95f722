package main

import "testing"

// TestInboxIsDone notices a message that was not expected.
func TestInboxIsDone(t *testing.T) {
	b := small(t)
	h, err := b.openInboxes(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	check(t, answered(t.Context(), h.Host, 0, "first", 2), "")
	check(t, answered(t.Context(), h.Host, 0, "first", 2), "")
	check(t, answered(t.Context(), h.Host, 0, "second", 2), "messages, want 2")
}
