package chat_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

const clerks dohost.Namespace[clerkOfNumbers] = "ClerkOfNumbers"

type clerkOfNumbers struct{ *chat.Agent[struct{}] }

// withoutNumbers replaces the digits in the texts of a message. It does not modify the original parts.
func withoutNumbers(_ *clerkOfNumbers, m chat.Message) chat.Message {
	m = m.Clone()
	for i, p := range m.Parts {
		if p.Type() != "text" {
			continue
		}
		text := strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return '*'
			}
			return r
		}, p.Text("text"))
		if p, err := p.Replace("text", text); err == nil {
			m.Parts[i] = p
		}
	}
	return m
}

// Sanitize changes messages before they are stored.
func ExampleHandlers_sanitize() {
	class := chat.Bind(clerks,
		func(_ context.Context, a *chat.Agent[struct{}]) (*clerkOfNumbers, error) {
			return &clerkOfNumbers{a}, nil
		},
		&chat.Handlers[clerkOfNumbers, struct{}]{
			Reply:    func(_ *clerkOfNumbers, ctx context.Context, r *chat.Reply) error { return r.Say(ctx, "Noted.") },
			Sanitize: withoutNumbers,
		})
	_ = class // for dohost.Open

	fmt.Println(withoutNumbers(nil, chat.Text("m", chat.RoleUser, "My card is 1234.")).PlainText())
	// Output: My card is ****.
}
