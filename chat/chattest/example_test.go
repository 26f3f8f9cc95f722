package chattest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/chattest"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// Parcel is the input of a tool that sends a parcel.
type Parcel struct {
	To string `json:"to"`
}

// sendTool sends parcels by a carrier that treats requests with the same key as one.
func sendTool(carrier *dohosttest.FakeService) chat.Tool {
	return chat.NewTool("send", "Sends a parcel.", func(ctx context.Context, p Parcel) (string, error) {
		call, _ := chat.CallFrom(ctx)
		return "sent", carrier.Call(ctx, call.Key, p.To) // the key is the same in each run of the call
	}, &chat.ToolOptions[Parcel, string]{Policy: ledger.PolicyIdempotent})
}

// sendOnce is the body of a test: func TestParcelIsSentOnce(t *testing.T).
func sendOnce(t *testing.T) {
	carrier := &dohosttest.FakeService{Idempotent: true}
	chattest.Tool(t, sendTool(carrier), Parcel{To: "Ada"}, carrier)
}

// A model calls the tool twice, and the test runs that again for each point where the end of an incarnation can interrupt
// a call. These are hundreds of runs, which take seconds, so go test only compiles this example: in a program's tests
// sendOnce is TestParcelIsSentOnce.
func Example() {
	all := func(_, _ string) (bool, error) { return true, nil }
	fmt.Println(testing.RunTests(all, []testing.InternalTest{{Name: "TestParcelIsSentOnce", F: sendOnce}}))
}
