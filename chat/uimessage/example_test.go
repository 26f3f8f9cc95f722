package uimessage_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/dohost/dohost/chat/uimessage"
)

// A stream makes the chunks of a reply from the chunks of a run, and the message from the chunks of the reply.
func Example() {
	s := uimessage.NewStream(uimessage.Message{ID: "m2", Role: uimessage.RoleAssistant}, "m2", 0)
	add := func(chunks []uimessage.Chunk) {
		for _, c := range chunks {
			s.Add(c)
			fmt.Println(s.Len(), c.Type())
		}
	}
	for _, delta := range []string{"It is ", "sunny."} {
		c := uimessage.MakeChunk("text-delta", "id", "t", "delta", delta)
		add(s.Before(c))
		add(s.Next(c))
	}
	add(s.Finish(true))
	message, err := json.Marshal(s.Message())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(message))
	// Output:
	// 1 start
	// 2 text-start
	// 3 text-delta
	// 4 text-delta
	// 5 text-end
	// 6 finish
	// {"id":"m2","parts":[{"state":"done","text":"It is sunny.","type":"text"}],"role":"assistant"}
}
