package extract_test

import (
	"context"
	"log"
	"testing/fstest"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/extract"
)

// A reply handler that answers from documents, without a provider.
func Example() {
	model, err := extract.New(fstest.MapFS{"limits.md": {Data: []byte("# Limits\n\nA value has at most 2 MiB.\n")}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	reply := func(ctx context.Context, r *chat.Reply) error { return chat.Answer(ctx, r, model, nil) }
	_ = reply // for chat.Handlers
}
