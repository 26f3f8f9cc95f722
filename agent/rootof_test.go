package agent

import (
	"testing"

	"github.com/dohost/dohost"
)

func TestRootOf(t *testing.T) {
	root := dohost.ID{Class: "Tree", Name: "an/oak"}
	branch := subAgentID(root, "Branch", "1/2")
	for object, want := range map[dohost.ID]dohost.ID{
		root: root, branch: root, subAgentID(branch, "Leaf", "a"): root,
		{Class: "Leaf", Name: "sub/%zz/a/b"}: {Class: "Leaf", Name: "sub/%zz/a/b"},
		{Class: "Leaf", Name: "sub/"}:        {Class: "Leaf", Name: "sub/"},
		{Class: "Leaf", Name: "sub/a"}:       {Class: "Leaf", Name: "sub/a"},
		{}:                                   {},
	} {
		if got := RootOf(object); got != want {
			t.Errorf("the root of %v is %v, want %v", object, got, want)
		}
	}
}
