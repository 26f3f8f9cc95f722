//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// chrome is a browser, driven over its DevTools protocol.
type chrome struct {
	ws  *websocket.Conn
	ctx context.Context

	mu      sync.Mutex // guards the rest
	n       int
	pending map[int]chan devtools
}

// devtools is a message of the protocol.
type devtools struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// tab is a page of a browser.
type tab struct {
	c                   *chrome
	TargetID, SessionID string
}

func startChrome(t *testing.T, bin string) *chrome {
	t.Helper()
	cmd := exec.Command(bin, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
		"--disable-background-timer-throttling",
		"--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "DevTools listening on ")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has closed
		<-drained
		_ = cmd.Wait()
	})
	if url == "" {
		t.Fatalf("%s does not start: %v", bin, lines.Err())
	}
	c := &chrome{ctx: t.Context(), pending: map[int]chan devtools{}}
	if c.ws, _, err = websocket.Dial(t.Context(), url, nil); err != nil {
		t.Fatal(err)
	}
	c.ws.SetReadLimit(-1)
	go c.read()
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.ctx = closing
		_, _ = c.do("", "Browser.close", nil) // its processes end with it
		<-drained
	})
	return c
}

// read passes answers to the goroutines that wait for them, until the browser has closed.
func (c *chrome) read() {
	for {
		_, data, err := c.ws.Read(context.Background())
		if err != nil {
			break
		}
		var m devtools
		if json.Unmarshal(data, &m) != nil || m.ID == 0 {
			continue
		}
		c.mu.Lock()
		if waiting := c.pending[m.ID]; waiting != nil {
			waiting <- m
			delete(c.pending, m.ID)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, waiting := range c.pending {
		close(waiting)
	}
	c.pending = nil
}

// ask sends a command and decodes its result.
func (c *chrome) ask(session, method string, params map[string]any, to any) error {
	result, err := c.do(session, method, params)
	if err != nil {
		return err
	}
	return json.Unmarshal(result, to)
}

// do sends a command and returns its result.
func (c *chrome) do(session, method string, params map[string]any) (json.RawMessage, error) {
	answer := make(chan devtools, 1)
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return nil, errors.New("the browser has closed")
	}
	c.n++
	id := c.n
	c.pending[id] = answer
	c.mu.Unlock()
	data, err := json.Marshal(devtools{ID: id, Method: method, SessionID: session, Params: params})
	if err != nil {
		return nil, err
	}
	if err := c.ws.Write(c.ctx, websocket.MessageText, data); err != nil {
		return nil, err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the browser has closed", method)
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

// open opens a page in a tab of its own. It returns when the page has begun to load, so that code for the page does
// not run in the empty page before.
func (c *chrome) open(url string) (*tab, error) {
	p := &tab{c: c}
	err := c.ask("", "Target.createTarget",
		map[string]any{"url": "about:blank", "newWindow": true, "width": 1000, "height": 900}, p)
	if err != nil {
		return nil, err
	}
	if err := c.ask("", "Target.attachToTarget", map[string]any{"targetId": p.TargetID, "flatten": true}, p); err != nil {
		return nil, err
	}
	var went struct{ ErrorText string }
	if err := c.ask(p.SessionID, "Page.navigate", map[string]any{"url": url}, &went); err != nil || went.ErrorText != "" {
		return nil, cmp.Or(err, fmt.Errorf("%s: %s", url, went.ErrorText))
	}
	return p, nil
}

// run runs JavaScript in the page and waits for its promise.
func (p *tab) run(code string) error {
	var out struct {
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	params := map[string]any{"expression": code, "awaitPromise": true}
	if err := p.c.ask(p.SessionID, "Runtime.evaluate", params, &out); err != nil {
		return err
	}
	if out.ExceptionDetails != nil {
		return errors.New(out.ExceptionDetails.Exception.Description)
	}
	return nil
}

// picture writes a screenshot of the page.
func (p *tab) picture(path string) error {
	var out struct{ Data []byte }
	if err := p.c.ask(p.SessionID, "Page.captureScreenshot", map[string]any{"format": "png"}, &out); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Data, 0o644)
}

func (p *tab) close() error {
	return p.c.ask("", "Target.closeTarget", map[string]any{"targetId": p.TargetID}, &struct{}{})
}
