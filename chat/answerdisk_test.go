package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/objectstore"
)

// TestAnswersOnAFullDisk sends decisions and results while the disk is full. The sender gets an error that names the cause, nothing
// has changed, and the repetition has its effect once there is space. An answer that waits for less than 20 s needs no repetition.
func TestAnswersOnAFullDisk(t *testing.T) {
	approve := func(ctx context.Context, h *dohost.Host, key string) (bool, error) {
		_, err := dohost.Call(ctx, countingAgents.Get(h, testID.Name), func(p *countingAgent, ctx context.Context, d chat.Decision) (bool, error) {
			return true, chat.Decide(ctx, p, &d)
		}, chat.Decision{Call: "a-1-0", Approve: true, Actor: "mia"})
		return err == nil, err
	}
	finish := func(ctx context.Context, h *dohost.Host, key string) (bool, error) {
		return dohost.Call(ctx, countingAgents.Get(h, testID.Name), func(p *countingAgent, ctx context.Context, c chat.Completion) (bool, error) {
			return chat.Complete(ctx, p, &c)
		}, chat.Completion{Key: key, Output: json.RawMessage(`"a"`)})
	}
	operate := func(action dohost.Action) func(context.Context, *dohost.Host, string) (bool, error) {
		return func(ctx context.Context, h *dohost.Host, _ string) (bool, error) {
			return h.Operate(ctx, testID, &dohost.AdminRequest{Kind: "call", ID: "a-1-0", Action: action, Actor: "mia", Result: json.RawMessage(`"a"`)})
		}
	}
	ran := 0
	for name, c := range map[string]struct {
		external bool
		answer   func(ctx context.Context, h *dohost.Host, key string) (bool, error)
	}{
		"decision":               {false, approve},
		"decision of operator":   {false, operate(dohost.ActionApprove)},
		"completion":             {true, finish},
		"completion of operator": {true, operate(dohost.ActionComplete)},
	} {
		for _, full := range []time.Duration{10 * time.Second, time.Minute} {
			ran++
			t.Run(fmt.Sprintf("%s, %v", name, full), func(t *testing.T) {
				key, runs := "", 0
				tool := counted(&runs, time.Second, nil)
				if c.external {
					tool = externalTool(&key, chat.External{})
				}
				m := &stepsModel{steps: [][]string{{"a"}}}
				class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} })
				runLong(t, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
					askToGo(t, h)
					time.Sleep(time.Second)
					disk.SetFree(0)
					time.AfterFunc(full, func() { disk.SetFree(1 << 40) })
					start := time.Now()
					applied, err := c.answer(t.Context(), h, key)
					if full > 20*time.Second {
						if waited := time.Since(start); applied || !errors.Is(err, dohost.ErrNoSpace) || waited > 25*time.Second {
							t.Errorf("after %v: applied %t, %v", waited, applied, err)
						}
						time.Sleep(full)
						if n := openCalls(t, h); n != 1 || runs != 0 || m.asked != 1 {
							t.Errorf("after a refused answer: %d open calls, %d runs, asked %d times", n, runs, m.asked)
						}
						applied, err = c.answer(t.Context(), h, key)
					}
					if !applied || err != nil {
						t.Errorf("applied %t, %v", applied, err)
					}
					time.Sleep(20 * time.Second)
					if n := openCalls(t, h); n != 0 || m.asked != 2 || !c.external && runs != 1 {
						t.Errorf("%d open calls, %d runs, asked %d times", n, runs, m.asked)
					}
				}, class)
			})
		}
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// openCalls returns the number of open calls.
func openCalls(t *testing.T, h *dohost.Host) (n int) {
	t.Helper()
	inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
		for _, err := range chat.Calls(ctx, p) {
			if n++; err != nil {
				return err
			}
		}
		return nil
	})
	return n
}

// diskClient is a client of an agent whose disk may be full. It reads all frames.
type diskClient struct {
	ws     *websocket.Conn
	mu     sync.Mutex
	frames []frame // guarded by mu
}

// dialDisk connects a client, which reads until the end of ctx.
func dialDisk(t *testing.T, ctx context.Context, h *dohost.Host) *diskClient {
	t.Helper()
	serve := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h.ServeObject(w, q, testID) })
	ws, _, err := sockettest.Dial(ctx, serve, "/?_pk=r")
	if err != nil {
		t.Fatal(err)
	}
	c := &diskClient{ws: ws}
	go func() {
		for {
			_, data, err := ws.Read(ctx)
			if err != nil {
				return
			}
			var f frame
			if err := json.Unmarshal(data, &f); err != nil {
				t.Errorf("%s: %v", data, err)
			}
			c.mu.Lock()
			c.frames = append(c.frames, f)
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *diskClient) send(t *testing.T, ctx context.Context, f map[string]any) {
	t.Helper()
	raw, err := json.Marshal(f)
	if err == nil {
		err = c.ws.Write(ctx, websocket.MessageText, raw)
	}
	if err != nil {
		t.Error(err)
	}
}

// errors returns the errors that the client has received, and the states of the call in the messages that follow them.
func (c *diskClient) errors() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		switch {
		case f.Type == "" && f.Error != nil:
			list = append(list, fmt.Sprint(f.Error))
		case f.Type == "cf_agent_message_updated" && len(list) > 0:
			for _, p := range f.Message.Parts {
				if p.CallID != "" {
					list = append(list, p.State)
				}
			}
		}
	}
	return list
}

// A client answers a call while the disk is full for a minute: by a frame, and by its copy of the messages. It gets an error and the
// call as it is stored, and the repetition has its effect.
func TestAnswersOfClientsOnAFullDisk(t *testing.T) {
	ran := 0
	for name, c := range map[string]struct {
		approve bool
		frame   map[string]any
		state   string // that the client gets after the error; empty if it has sent its messages, and knows them
	}{
		"result":   {false, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "a-1-0", "output": "a", "autoContinue": true}, "input-available"},
		"approval": {true, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": true, "autoContinue": true}, "approval-requested"},
		"messages": {false, nil, ""},
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			runs := 0
			tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}}
			if c.approve {
				tool = counted(&runs, time.Second, nil)
			}
			m := &stepsModel{steps: [][]string{{"a"}}}
			class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} })
			runLong(t, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				askToGo(t, h)
				time.Sleep(time.Second)
				answer := c.frame
				if answer == nil {
					inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
						list, err := chat.Messages(ctx, p, 1)
						if err != nil {
							return err
						}
						raw, err := json.Marshal(list[0])
						copied := strings.Replace(string(raw), `"state":"input-available"`, `"state":"output-available","output":"a"`, 1)
						answer = map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(copied)}}
						return err
					})
				}
				client := dialDisk(t, ctx, h)
				disk.SetFree(0)
				client.send(t, ctx, answer)
				time.Sleep(time.Minute)
				got := client.errors()
				if len(got) == 0 || !strings.Contains(got[0], "not stored: dohost: disk almost full") || c.state != "" && (len(got) != 2 || got[1] != c.state) {
					t.Errorf("the client gets %q", got)
				}
				disk.SetFree(1 << 40)
				time.Sleep(time.Minute)
				if n := openCalls(t, h); n != 1 || runs != 0 || m.asked != 1 {
					t.Errorf("after a refused answer: %d open calls, %d runs, asked %d times", n, runs, m.asked)
				}
				client.send(t, ctx, answer)
				time.Sleep(time.Minute)
				if n := openCalls(t, h); n != 0 || c.approve && runs != 1 || c.frame != nil && m.asked != 2 {
					t.Errorf("after the repetition: %d open calls, %d runs, asked %d times", n, runs, m.asked)
				}
				stop()
				_ = client.ws.CloseNow()
				synctest.Wait()
			}, class)
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// The time limit of a call ends while the disk is full. A decision, a completion and the frames of a client get an error within the
// bound, and the call ends when there is space.
func TestAnswersThatAreOverdueOnAFullDisk(t *testing.T) {
	ran := 0
	for name, c := range map[string]struct {
		external bool
		answer   func(ctx context.Context, p *countingAgent, key string) error // nil for a frame
		frame    map[string]any
		want     string // in the frames that the client gets
	}{
		"decision": {false, func(ctx context.Context, p *countingAgent, _ string) error {
			return chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0", Approve: true})
		}, nil, ""},
		"completion": {true, func(ctx context.Context, p *countingAgent, key string) error {
			_, err := chat.Complete(ctx, p, &chat.Completion{Key: key})
			return err
		}, nil, ""},
		"approval": {false, nil, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": true}, "not stored: dohost: disk almost full"},
		"request":  {false, nil, map[string]any{"type": "cf_agent_use_chat_request", "id": "two", "init": map[string]any{"method": "POST", "body": "{}"}}, "two failed"},
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			key, runs := "", 0
			tool := counted(&runs, time.Second, nil)
			tool.Approve.Within = time.Minute
			if c.external {
				tool = externalTool(&key, chat.External{Within: time.Minute})
			}
			class := countingClassOf(&countingState{}, &handlers{
				Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
					return chat.Answer(ctx, r, &stepsModel{steps: [][]string{{"a"}}}, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
				},
				Agent: agent.Handlers[countingAgent, struct{}]{OnMessage: func(_ *countingAgent, _ context.Context, _ *agent.Conn, f dohost.Frame) error {
					t.Errorf("OnMessage gets %s", f.Data)
					return nil
				}},
			})
			runLong(t, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				askToGo(t, h)
				time.Sleep(time.Second)
				disk.SetFree(0)
				time.Sleep(2 * time.Minute)
				client, start := dialDisk(t, ctx, h), time.Now()
				if c.frame != nil {
					client.send(t, ctx, c.frame)
					time.Sleep(25 * time.Second)
					if got := client.failures(); !strings.Contains(got, c.want) {
						t.Errorf("the client gets %q, want %q", got, c.want)
					}
				} else {
					ctx, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error { return c.answer(ctx, p, key) })
					if waited := time.Since(start); !errors.Is(err, dohost.ErrNoSpace) || waited > 25*time.Second {
						t.Errorf("after %v: %v", waited, err)
					}
				}
				disk.SetFree(1 << 40)
				time.Sleep(time.Minute)
				if n := openCalls(t, h); n != 0 || runs != 0 {
					t.Errorf("with space: %d open calls, %d runs", n, runs)
				}
				stop()
				_ = client.ws.CloseNow()
				synctest.Wait()
			}, class)
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// failures returns the errors and the failed requests in the frames that the client has received.
func (c *diskClient) failures() (text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		switch {
		case f.Type == "" && f.Error != nil:
			text += fmt.Sprint(f.Error)
		case f.Type == "cf_agent_use_chat_response" && f.Done:
			text += f.ID + " failed"
		}
	}
	return text
}
