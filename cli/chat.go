package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

type chatCmd struct {
	At        string   `env:"DOHOST_AT" default:"127.0.0.1:8787" placeholder:"ADDR" help:"Address of the running host for clients: host:port or a URL (${default})."`
	Agent     objectID `default:"assistant/me" placeholder:"CLASS/NAME" help:"The agent to talk to (${default})."`
	TokenFile string   `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Present the first token of this file."`
	Question  []string `arg:"" optional:"" help:"The question. Without it, each line of standard input is a question."`
}

// Run is the command.
func (c *chatCmd) Run(ctx context.Context, std stdio) error {
	if err := checkFilled("--at", "DOHOST_AT", c.At); err != nil {
		return err
	}
	if strings.ContainsAny(c.Agent.Name, "?#% ") {
		return fmt.Errorf("--agent %v: the name contains a character that must be encoded in a URL", c.Agent)
	}
	path := "/agents/" + dohost.URLName(c.Agent.Class) + "/" + c.Agent.Name
	at := c.At
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	t := &chatClient{at: strings.TrimSuffix(at, "/"), path: path, header: http.Header{}, out: plainWriter{std.out}, err: plainWriter{std.err}}
	if err := authorize(t.header, "--token-file", c.TokenFile); err != nil {
		return err
	}
	defer t.close()
	if err := t.connect(ctx); err != nil {
		return err
	}
	if len(c.Question) > 0 {
		return t.ask(ctx, strings.Join(c.Question, " "))
	}
	for lines := bufio.NewScanner(std.in); t.prompt() && lines.Scan(); {
		if q := strings.TrimSpace(lines.Text()); q != "" {
			err := t.ask(ctx, q)
			if failed, ok := errors.AsType[*answerError](err); ok {
				_, err = fmt.Fprintf(t.err, "\n(%s)\n", failed) // the next question may succeed
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// chatClient is a conversation in a terminal.
type chatClient struct {
	at, path string
	header   http.Header // of each request
	out, err io.Writer

	ws        *websocket.Conn // nil: none
	request   string          // the request that runs
	printed   string          // of its answer
	replay    strings.Builder // the text of a replay
	replaying bool
}

// maxAbsence is the longest time without a host, and reconnectPause the time between attempts to reconnect.
const (
	maxAbsence     = time.Minute
	reconnectPause = 200 * time.Millisecond
)

func (t *chatClient) prompt() bool {
	_, err := fmt.Fprint(t.out, "> ")
	return err == nil
}

// connect connects, and asks whether there is a reply to resume.
func (t *chatClient) connect(ctx context.Context) error {
	ws, res, err := websocket.Dial(ctx, strings.Replace(t.at, "http", "ws", 1)+t.path+"?_pk="+ulid.Make().String(), &websocket.DialOptions{HTTPHeader: t.header})
	if err != nil {
		if res != nil {
			body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // an incomplete text is used as it is
			return fmt.Errorf("%s: %s: %s", t.path, res.Status, strings.TrimSpace(string(body)))
		}
		return fmt.Errorf("no host answers at %s: %w", strings.TrimPrefix(t.at, "http://"), err)
	}
	ws.SetReadLimit(64 << 20)
	t.ws, t.replaying = ws, false
	return t.send(ctx, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "chat"})
}

func (t *chatClient) close() {
	if t.ws != nil {
		_ = t.ws.Close(websocket.StatusNormalClosure, "") // the host may have closed first
	}
}

func (t *chatClient) send(ctx context.Context, f map[string]any) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return t.ws.Write(ctx, websocket.MessageText, data)
}

// ask asks, and prints the answer as it arrives, over as many connections as necessary.
func (t *chatClient) ask(ctx context.Context, question string) error {
	list, err := t.messages(ctx)
	if errors.As(err, new(*net.OpError)) {
		if err = t.reconnect(ctx); err == nil {
			list, err = t.messages(ctx)
		}
	}
	if err != nil {
		return err
	}
	t.request, t.printed = ulid.Make().String(), ""
	text, err := json.Marshal(map[string]any{
		"id": "user-" + t.request, "role": "user", "parts": []any{map[string]any{"type": "text", "text": question}},
	})
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"messages": append(list, text)})
	if err != nil {
		return err
	}
	request := map[string]any{
		"type": "cf_agent_use_chat_request", "id": t.request, "init": map[string]any{"method": "POST", "body": string(body)},
	}
	err = t.send(ctx, request)
	for done := false; !done; {
		if err == nil {
			done, err = t.receive(ctx)
		}
		if err == nil || ctx.Err() != nil || errors.As(err, new(*answerError)) {
			if err != nil {
				return err
			}
			continue
		}
		if err = t.reconnect(ctx); err != nil {
			return err
		}
		err = t.send(ctx, request) // the agent knows the id if the request has arrived
	}
	_, err = fmt.Fprintln(t.out)
	return err
}

// answerError is an error that the agent reports.
type answerError struct{ text string }

func (e *answerError) Error() string { return e.text }

// reconnect connects again to a host that was not reachable.
func (t *chatClient) reconnect(ctx context.Context) (err error) {
	fmt.Fprintln(t.err, "\n(lost the connection to the host: reconnecting)") //nolint:errcheck // a lost message does no harm
	_ = t.ws.CloseNow()                                                      // it is broken
	for end := time.Now().Add(maxAbsence); time.Now().Before(end); {
		if err = t.connect(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(reconnectPause):
		case <-ctx.Done():
		}
	}
	return err
}

// messages returns the messages of the conversation.
func (t *chatClient) messages(ctx context.Context) (list []json.RawMessage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.at+t.path+"/get-messages", nil)
	if err != nil {
		return nil, err
	}
	req.Header = t.header.Clone()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/get-messages: %s: not a chat agent", t.path, res.Status)
	}
	return list, json.NewDecoder(res.Body).Decode(&list)
}

// receive receives a frame, and returns whether the answer has ended.
func (t *chatClient) receive(ctx context.Context) (done bool, err error) {
	_, data, err := t.ws.Read(ctx)
	if err != nil {
		return false, err
	}
	var f struct {
		Type, ID, Body               string
		Done, Replay, ReplayComplete bool
		Error                        any
	}
	if json.Unmarshal(data, &f) != nil || f.ID != t.request {
		return false, nil
	}
	switch {
	case f.Type == "cf_agent_stream_resuming" && !t.replaying:
		t.replaying = true
		t.replay.Reset()
		return false, t.send(ctx, map[string]any{"type": "cf_agent_stream_resume_ack", "id": f.ID})
	case f.Type != "cf_agent_use_chat_response":
		return false, nil
	case f.Done && f.Error == true:
		return true, &answerError{f.Body}
	case f.Done:
		err := t.printMissed(ctx)
		return err == nil, err
	case f.ReplayComplete:
		return false, t.print(strings.TrimPrefix(t.replay.String(), t.printed))
	}
	var c struct{ Type, Delta string }
	if err := json.Unmarshal([]byte(f.Body), &c); err != nil || c.Type != "text-delta" {
		return false, err
	}
	if f.Replay {
		t.replay.WriteString(c.Delta)
		return false, nil
	}
	return false, t.print(c.Delta)
}

func (t *chatClient) print(text string) error {
	t.printed += text
	_, err := io.WriteString(t.out, text)
	return err
}

// printMissed prints the end of an answer that ended while the host was not reachable.
func (t *chatClient) printMissed(ctx context.Context) error {
	list, err := t.messages(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	var m struct {
		Role  string
		Parts []struct{ Type, Text string }
	}
	if err := json.Unmarshal(list[len(list)-1], &m); err != nil || m.Role != "assistant" {
		return err
	}
	whole := ""
	for _, p := range m.Parts {
		if p.Type == "text" {
			whole += p.Text
		}
	}
	rest, ok := strings.CutPrefix(whole, t.printed)
	if !ok {
		return nil // another client has sent a request since
	}
	return t.print(rest)
}
