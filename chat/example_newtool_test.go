package chat_test

import (
	"context"
	"fmt"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// Stay is the input of a tool that books a room.
type Stay struct {
	Hotel  string `json:"hotel" jsonschema:"the name of the hotel"`
	Nights int    `json:"nights"`
	Notes  string `json:"notes,omitempty"`
}

// Receipt is its output.
type Receipt struct {
	Number string `json:"number"`
}

// Hotel is the other side. It treats requests with the same key as one.
type Hotel interface {
	Book(ctx context.Context, key string, s Stay) (Receipt, error)
}

func bookingTool(hotel Hotel) chat.Tool {
	return chat.NewTool("book", "Books a room.", func(ctx context.Context, s Stay) (Receipt, error) {
		call, _ := chat.CallFrom(ctx)
		return hotel.Book(ctx, call.Key, s) // the key is the same in each run of the call
	}, &chat.ToolOptions[Stay, Receipt]{Policy: ledger.PolicyIdempotent, Approve: chat.Always[Stay]})
}

// The model receives the JSON schema of the input. A call that does not match it gets an error, and no approval is
// requested.
func ExampleNewTool() {
	tool := bookingTool(nil)
	fmt.Println(string(tool.Parameters))
	// Output:
	// {"type":"object","properties":{"hotel":{"type":"string","description":"the name of the hotel"},"nights":{"type":"integer"},"notes":{"type":"string"}},"required":["hotel","nights"],"additionalProperties":false}
}
