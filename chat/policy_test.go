package chat

import (
	"fmt"
	"testing"

	"github.com/dohost/dohost/internal/work"
)

func TestPolicyMergeAdmission(t *testing.T) {
	open := []replyRow{
		{ID: "one", Item: work.Item{State: work.Running}, Submits: true, Users: []string{"u1"}},
		{ID: "two", Submits: true, Users: []string{"u1", "u2"}},
		{ID: "go on"},
		{ID: "three", Submits: true, Users: []string{"u1", "u2", "u3"}},
	}
	a := PolicyMerge.admit(open)
	if got := fmt.Sprint(a.skip, a.merge); got != "[two three] [u2 u3]" {
		t.Error(got)
	}
}
