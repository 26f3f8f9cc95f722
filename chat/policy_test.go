package chat

import (
	"fmt"
	"testing"
)

func TestPolicyMergeAdmission(t *testing.T) {
	open := []replyRow{
		{ID: "one", Status: StatusRunning, Submits: true, Users: []string{"u1"}},
		{ID: "two", Status: StatusQueued, Submits: true, Users: []string{"u1", "u2"}},
		{ID: "go on", Status: StatusQueued},
		{ID: "three", Status: StatusQueued, Submits: true, Users: []string{"u1", "u2", "u3"}},
	}
	a := PolicyMerge.admit(open)
	if got := fmt.Sprint(a.skip, a.merge); got != "[two three] [u2 u3]" {
		t.Error(got)
	}
}
