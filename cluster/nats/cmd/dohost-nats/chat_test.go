//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/examples/assistant"
)

// ask asks an agent at a node by dohost chat, and returns the answer as it is printed, and the longest time between two of its words. It
// calls then after ten words.
func (n *node) ask(agent string, then func()) (answer, messages string, pause time.Duration) {
	n.t.Helper()
	cmd := exec.Command(os.Args[0], "chat", "--at", n.at, "--agent", agent, "What happens to an object when it is evicted, and what survives?")
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = append(os.Environ(), programEnv+"="+builtin), &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, or the test has
	var printed strings.Builder
	words, last := bufio.NewReader(out), time.Time{}
	for i := 1; ; i++ {
		word, err := words.ReadString(' ')
		printed.WriteString(word)
		if err != nil {
			break
		}
		now := time.Now()
		if i > 1 {
			pause = max(pause, now.Sub(last))
		}
		last = now
		if i == 10 {
			then()
		}
	}
	if err := cmd.Wait(); err != nil {
		n.t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.TrimSpace(printed.String()), stderr.String(), pause
}

// TestAnswerContinuesOnAnotherNode kills the node of an agent in the middle of an answer. The client is connected to another node, connects
// again, and prints the complete answer once.
func TestAnswerContinuesOnAnotherNode(t *testing.T) {
	t.Parallel()
	c := newNodes(t, builtin)
	c.join(0, t.TempDir())
	c.join(1, t.TempDir())
	c.awaitBalance()
	name := ""
	for i := 0; name == "" || c.ownerOf(cluster.CellOf(dohost.ID{Class: string(assistant.Assistants), Name: name}, cells)) != 0; i++ {
		name = fmt.Sprint("a", i)
	}
	answer, messages, pause := c.list[1].ask("assistant/"+name, func() { c.list[0].signal(syscall.SIGKILL) })
	if !strings.Contains(messages, "reconnecting") {
		t.Errorf("the connection was not cut: %q", messages)
	}
	t.Logf("the longest time between two words: %v", pause.Round(time.Millisecond))
	within(t, "the next word", pause, nextWordLimit)
	if whole, _, _ := c.list[1].ask("assistant/other", func() {}); answer != whole || whole == "" {
		t.Errorf("got  %q\nwant %q\n%s", answer, whole, messages)
	}
}
