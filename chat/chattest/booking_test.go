package chattest_test

import (
	"context"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/chattest"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// Stay is the input of a tool that books a room, and Receipt its output.
type (
	Stay struct {
		Hotel  string `json:"hotel"`
		Nights int    `json:"nights"`
	}
	Receipt struct {
		Number string `json:"number"`
	}
)

// bookingTool books a room at a hotel that treats requests with the same key as one.
func bookingTool(book func(ctx context.Context, key string, s Stay) (Receipt, error)) chat.Tool {
	return chat.NewTool("book", "Books a room.", func(ctx context.Context, s Stay) (Receipt, error) {
		call, _ := chat.CallFrom(ctx)
		return book(ctx, call.Key, s) // the key is the same in each run of the call
	}, &chat.ToolOptions[Stay, Receipt]{Policy: ledger.PolicyIdempotent, Approve: chat.Always[Stay]})
}

// TestBookingTool ends the calls at all places.
func TestBookingTool(t *testing.T) {
	hotel := &dohosttest.FakeService{Idempotent: true}
	book := func(ctx context.Context, key string, s Stay) (Receipt, error) {
		return Receipt{Number: "r_1"}, hotel.Call(ctx, key, s.Hotel)
	}
	chattest.Tool(t, bookingTool(book), Stay{Hotel: "Ritz", Nights: 2}, hotel)
}
