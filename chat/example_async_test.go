package chat_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// The studio is an assistant whose renderings take hours.
const Studios dohost.Namespace[Studio] = "studio"

type (
	Studio struct{ *chat.Agent[struct{}] }
	Film   struct {
		Title string `json:"title"`
	}
	RenderingID struct {
		ID string `json:"id"`
	}
	Rendering struct {
		State  chat.CallState  `json:"state"`
		Output json.RawMessage `json:"output,omitempty"`
		Error  string          `json:"error,omitempty"`
	}
)

// renderTool starts a rendering. The model receives the id of the rendering, and the reply continues.
func (s *Studio) renderTool() chat.Tool {
	return chat.NewTool("render", "Renders a film, in some hours.", func(ctx context.Context, f Film) (any, error) {
		call, _ := chat.CallFrom(ctx)
		return nil, dohost.Put(ctx, s.Storage(), "film", call.Key) // for the farm, which passes the result to rendered
	}, &chat.ToolOptions[Film, any]{Policy: ledger.PolicyIdempotent, External: &chat.External{Async: true}})
}

// rendered ends a rendering, and inserts a message, which the assistant answers. The farm repeats it after an error.
func (s *Studio) rendered(ctx context.Context, c chat.Completion) error {
	if _, err := chat.Complete(ctx, s, &c); err != nil {
		return err
	}
	id := "rendered " + c.Key // a repetition asks once
	text := fmt.Sprintf("The film is rendered: %s%s", c.Output, c.Error)
	news := chat.Text(id, chat.RoleSystem, text) // RoleUser for Anthropic
	_, err := chat.Ask(ctx, s, []chat.Message{news}, &chat.AskOptions{ID: id})
	return err
}

// statusTool returns the state of a rendering, and its result, when the model asks for them.
func (s *Studio) statusTool() chat.Tool {
	return chat.NewTool("status", "Returns the state of a rendering.", func(ctx context.Context, j RenderingID) (Rendering, error) {
		call, ok, err := chat.FindCall(ctx, s, j.ID)
		if err == nil && !ok {
			err = fmt.Errorf("there is no rendering %q", j.ID)
		}
		return Rendering{call.State, call.Output, call.Error}, err
	}, nil)
}

func studioClass() dohost.Class {
	return chat.Bind(Studios, func(_ context.Context, a *chat.Agent[struct{}]) (*Studio, error) { return &Studio{a}, nil },
		&chat.Handlers[Studio, struct{}]{Reply: func(s *Studio, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, filmModel{}, &chat.AnswerOptions{Tools: []chat.Tool{s.renderTool(), s.statusTool()}})
		}})
}

// filmModel replaces a provider's model: it renders a film when it is first asked, asks for the state when it is asked again, and
// repeats the messages of the studio.
type filmModel struct{}

// Stream implements [chat.Model].
func (filmModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		last := p.Messages[len(p.Messages)-1]
		status, started := outputOf[Rendering]([]chat.Message{p.Partial}, "status")
		job, queued := outputOf[RenderingID](append(p.Messages, p.Partial), "render")
		_, now := outputOf[RenderingID]([]chat.Message{p.Partial}, "render")
		switch {
		case last.Role == chat.RoleSystem:
			yield(chat.TextDelta("t", "News: "+last.PlainText()), nil)
		case started:
			yield(chat.TextDelta("t", fmt.Sprintf("The call is %s, its result %s.", status.State, cmp.Or(string(status.Output), "missing"))), nil)
		case now:
			yield(chat.TextDelta("t", "I will report."), nil)
		case queued:
			yield(chat.ToolInput("call-2", "status", fmt.Sprintf(`{"id":%q}`, job.ID)), nil)
		default:
			yield(chat.ToolInput("call-1", "render", `{"title":"Metropolis"}`), nil)
		}
	}
}

// outputOf decodes the newest result of a tool.
func outputOf[T any](list []chat.Message, tool string) (v T, ok bool) {
	for _, m := range list {
		for _, part := range m.Parts {
			if out := part.Member("output"); part.Type() == "tool-"+tool && out != nil {
				ok = json.Unmarshal(out, &v) == nil
			}
		}
	}
	return v, ok
}

// say asks the studio, and prints the answer.
func (s *Studio) say(ctx context.Context, text string) error {
	id, err := chat.Ask(ctx, s, []chat.Message{chat.Text(text, chat.RoleUser, text)}, nil)
	if err != nil {
		return err
	}
	return s.printAnswer(ctx, id)
}

// printAnswer waits for the end of a request, and prints the answer.
func (s *Studio) printAnswer(ctx context.Context, request string) error {
	if _, _, err := chat.Wait(ctx, s, request); err != nil {
		return err
	}
	list, err := chat.Messages(ctx, s, 1)
	if err == nil {
		fmt.Println(list[0].PlainText())
	}
	return err
}

// inStudio runs a function in a studio.
func inStudio(do func(ctx context.Context, s *Studio) error) {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, studioClass())
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := Studios.Get(h, "babelsberg").Do(context.Background(), do); err != nil {
		log.Fatal(err)
	}
}

// The conversation learns the end of an asynchronous call by a message.
func ExampleExternal_message() {
	inStudio(func(ctx context.Context, s *Studio) error {
		err := s.say(ctx, "Render Metropolis.")
		key, _, failed := dohost.Get[string](ctx, s.Storage(), "film")
		for range 2 { // the farm repeats the result
			err = errors.Join(err, s.rendered(ctx, chat.Completion{Key: key, Output: json.RawMessage(`"metropolis.mp4"`)}))
		}
		err = errors.Join(err, failed, s.printAnswer(ctx, "rendered "+key))
		list, failed := chat.Messages(ctx, s, 0)
		for _, m := range list {
			fmt.Println(m.Role)
		}
		return errors.Join(err, failed)
	})
	// Output:
	// I will report.
	// News: The film is rendered: "metropolis.mp4"
	// user
	// assistant
	// system
	// assistant
}

// The model learns the end of an asynchronous call when it asks for its state.
func ExampleExternal_status() {
	inStudio(func(ctx context.Context, s *Studio) error {
		err := errors.Join(s.say(ctx, "Render Metropolis."), s.say(ctx, "Is it done?"))
		key, _, failed := dohost.Get[string](ctx, s.Storage(), "film")
		_, completed := chat.Complete(ctx, s, &chat.Completion{Key: key, Output: json.RawMessage(`"metropolis.mp4"`)})
		return errors.Join(err, failed, completed, s.say(ctx, "And now?"))
	})
	// Output:
	// I will report.
	// The call is external, its result missing.
	// The call is completed, its result "metropolis.mp4".
}
