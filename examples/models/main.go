// Command models serves assistants that answer with a provider's model:
//
//	OPENAI_API_KEY=... go run ./examples/models --model openai:gpt-5.2
//	ANTHROPIC_API_KEY=... go run ./examples/models --model anthropic:claude-sonnet-4-5
//	OPENAI_BASE_URL=http://127.0.0.1:11434/v1 go run ./examples/models --model completions:llama3.2
//
// The model is the first flag, or the environment variable DOHOST_MODEL; the dohost command follows. It is a
// separate program, and a module of its own, since the official SDKs take longer to compile than all other packages.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/anthropic"
	"github.com/dohost/dohost/chat/openai"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/examples/assistant"
)

func main() {
	name := os.Getenv("DOHOST_MODEL")
	if len(os.Args) > 2 && os.Args[1] == "--model" {
		name = os.Args[2]
		os.Args = append(os.Args[:1], os.Args[3:]...)
	}
	model, err := modelOf(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "models:", err)
		os.Exit(2)
	}
	cli.Main(assistant.Of(model))
}

// modelOf returns the model of a name such as openai:gpt-5.2.
func modelOf(name string) (chat.Model, error) {
	api, model, _ := strings.Cut(name, ":")
	if model == "" {
		return nil, fmt.Errorf("--model %q: want openai:, completions: or anthropic:, and the name of a model", name)
	}
	switch api {
	case "openai":
		return openai.NewResponses(model, nil)
	case "completions":
		return openai.NewCompletions(model, nil)
	case "anthropic":
		return anthropic.New(model, nil)
	}
	return nil, fmt.Errorf("--model %q: %q is none of openai, completions and anthropic", name, api)
}
