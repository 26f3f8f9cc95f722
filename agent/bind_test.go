package agent_test

import (
	"reflect"
	"testing"

	"github.com/dohost/dohost/agent"
)

func TestEntryOfOneClassDoesNotConvertToAnother(t *testing.T) {
	if reflect.TypeFor[agent.Entry[fiberAgent]]().ConvertibleTo(reflect.TypeFor[agent.Entry[nestedAgent]]()) {
		t.Error("an entry converts")
	}
}
