package chat_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

const numberRedactors dohost.Namespace[numberRedactor] = "NumberRedactor"

type numberRedactor struct{ *chat.Agent[struct{}] }

// withoutNumbers replaces the digits in the texts of a message. It does not modify the original parts.
func withoutNumbers(_ *numberRedactor, m chat.Message) chat.Message {
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
	class := chat.Bind(numberRedactors,
		func(_ context.Context, a *chat.Agent[struct{}]) (*numberRedactor, error) {
			return &numberRedactor{a}, nil
		},
		&chat.Handlers[numberRedactor, struct{}]{
			Reply:    func(_ *numberRedactor, ctx context.Context, r *chat.Reply) error { return r.Say(ctx, "Noted.") },
			Sanitize: withoutNumbers,
		})
	_ = class // for dohost.Open

	fmt.Println(withoutNumbers(nil, chat.Text("m", chat.RoleUser, "My card is 1234.")).PlainText())
	// Output: My card is ****.
}
