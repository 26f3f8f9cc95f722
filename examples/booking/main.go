// Command booking has a chat agent whose tool runs in other processes: the calls are tasks of a worker pool, and the worker is a shell
// script. From the root of the module, in three terminals:
//
//	go run ./examples/booking serve
//	go run ./examples/booking daemon --pool tools --role book -- sh examples/booking/book.sh
//	go run ./examples/booking chat --agent clerk/ada "seat 12, please"
//
// The script takes 10 s. Kill its worker with SIGKILL, then the server, and start the server again: bookings.log has one line for the
// call, and the answer arrives.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/pool"
)

func main() { cli.Main(Class(), pool.Class(&pool.Options{RestartDelay: time.Second})) }

// Clerks is the namespace of Clerk objects.
const Clerks dohost.Namespace[Clerk] = "clerk"

// Clerk is an agent that books seats.
type Clerk struct{ *chat.Agent[struct{}] }

// Booking is the input of the tool, and of the script.
type Booking struct {
	Seat int `json:"seat" jsonschema:"the number of the seat"`
}

// book is the tool. The script books each key once, so it may run again for a call.
var book = chat.PoolTool("book", "Books a seat.", &chat.PoolToolOptions[Booking]{Policy: ledger.PolicyIdempotent})

// Class returns the class of clerks.
func Class() dohost.Class {
	return chat.Bind(Clerks, func(_ context.Context, a *chat.Agent[struct{}]) (*Clerk, error) { return &Clerk{a}, nil },
		&chat.Handlers[Clerk, struct{}]{Reply: func(_ *Clerk, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, script{}, &chat.AnswerOptions{Tools: []chat.Tool{book}})
		}})
}

// script is a model without a provider: it books the numbers of the question, and answers with the results.
type script struct{}

// Stream implements [chat.Model].
func (script) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		var answers []string
		for _, part := range p.Partial.Parts {
			if uimessage.IsCall(part) {
				answers = append(answers, part.Text("output")+part.Text("errorText"))
			}
		}
		if len(answers) > 0 {
			yield(chat.TextDelta("answer", strings.Join(answers, " ")), nil)
			return
		}
		asked := p.Messages[len(p.Messages)-1].PlainText()
		for i, word := range strings.FieldsFunc(asked, func(c rune) bool { return c < '0' || c > '9' }) {
			seat, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			in, err := json.Marshal(Booking{seat})
			if !yield(chat.ToolInput(fmt.Sprint("call-", i), "book", string(in)), err) {
				return
			}
			answers = append(answers, word)
		}
		if len(answers) == 0 {
			yield(chat.TextDelta("answer", "Which seat?"), nil)
		}
	}
}
