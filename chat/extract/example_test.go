package extract_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/extract"
)

// A model answers with sentences from documents, without a provider. For a reply handler, pass the model to
// [chat.Answer].
func Example() {
	model, err := extract.New(fstest.MapFS{"limits.md": {Data: []byte("# Limits\n\nA value has at most 2 MiB.\n")}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	question := chat.Text("1", chat.RoleUser, "How large is a value?")
	for c, err := range model.Stream(context.Background(), &chat.Prompt{Messages: []chat.Message{question}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(c.Text("delta"))
	}
	// Output: A value has at most 2 MiB.
}
