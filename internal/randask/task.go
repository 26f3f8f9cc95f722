package randask

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost/inbox"
)

// task is the content of a message, as JSON: it determines the answer of the model, but not the time of the answer.
type task struct {
	Name   string
	Fails  failure  `json:",omitempty"`
	Times  int      `json:",omitempty"` // of the failure
	Late   int      `json:",omitempty"` // milliseconds, before the text
	Silent bool     `json:",omitempty"` // before the text, until a Release
	At     string   `json:",omitempty"` // the object, of a question
	Asks   [][]call `json:",omitempty"` // of each step
}

// call is a call of an agent tool.
type call struct {
	Tool, Object string
	Task         task
}

// failure is a failure of the model.
type failure int

const (
	failNot failure = iota
	failModel
	failBudget
)

// always is a number of times that is larger than any number of attempts.
const always = 1000

// answer is the response to a task, as JSON.
type answer struct {
	Of  string
	Got []result `json:",omitempty"`
}

// result is the result of a call: the response of the asked agent, or the text of an error.
type result struct{ Name, Text string }

// parse decodes a text that is JSON; ok is false for others.
func parse[T any](text string) (v T, ok bool) {
	return v, json.Unmarshal([]byte(text), &v) == nil
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// question is a task that was made, and its place. It does not change.
type question struct {
	task
	object, agent string // that answer it
	by            *question
	step          int // of the task of by
	number        int // of equal calls in that step
}

// path returns the agents that wait for the answer.
func (q *question) path() []inbox.Address {
	if q.by == nil {
		return nil
	}
	return append(slices.Clone(q.by.path()), q.by.address())
}

func (q *question) address() inbox.Address { return addressOf(q.object, q.agent) }

// refused returns the beginning and the end of the error of a question that is not asked; empty for others.
func (q *question) refused() (begin, end string) {
	path, text := q.path(), ""
	for _, a := range path {
		text += a.String() + " → "
	}
	switch limit := tools[q.agent].depth; {
	case len(path) > limit:
		return fmt.Sprintf("no agent was asked: %d agents would ask each other, the limit is %d: ", len(path), limit), text[:len(text)-len(" → ")]
	case q.agent != "envoy" && slices.Contains(path, q.address()):
		return fmt.Sprintf("the agent %v was not asked: it waits for this answer: ", q.address()), text + q.address().String()
	}
	return "", ""
}

// lates are the times of an answer, in milliseconds: some are near a limit.
var lates = []int{0, 0, 100, 1000, 4_900, 5_100, 19_500, 19_990, 20_010, 22_000, 60_000, 121_000}

// deadlines are the times until the deadlines of messages, in milliseconds; 0: none.
var deadlines = []int{0, 0, 0, 5_000, 20_000, 19_000, 60_000, 200, -1000}

// newTask makes a task for an agent of an object, and its questions. Their names begin with its own.
func newTask(name string, in Instr) task {
	n := in.N
	t := task{Name: name, Late: lates[n%len(lates)], Silent: n/12%11 == 0}
	switch n / 132 % 9 {
	case 0:
		t.Fails, t.Times = failModel, 1
	case 1:
		t.Fails, t.Times = failModel, always
	case 2:
		t.Fails, t.Times = failBudget, 1
	}
	return t
}

// addAsks adds the questions in the body of an instruction.
func (t *task) addAsks(agent string, body []Instr) {
	for i, in := range body {
		tool, object := place(in.K)
		if tool == agent && tool == "guide" { // which has no time limit
			tool = "clerk"
		}
		c := call{tool, object, newTask(fmt.Sprint(t.Name, ".", i), in)}
		c.Task.At = object
		c.Task.addAsks(tool, in.Body)
		calls := []call{c}
		if in.N%7 == 0 { // an equal call in the same step
			calls = append(calls, c)
		}
		if last := len(t.Asks) - 1; last >= 0 && in.N%2 == 0 {
			t.Asks[last] = append(t.Asks[last], calls...)
		} else {
			t.Asks = append(t.Asks, calls)
		}
	}
}

// questions returns the question of a task, and all questions below it. Equal calls are one question.
func questions(t task, object, agent string, by *question, step int) (list []*question) {
	q := &question{task: t, object: object, agent: agent, by: by, step: step, number: 1}
	list = append(list, q)
	for step, calls := range t.Asks {
		for i, c := range calls {
			if i > 0 && calls[i-1].Task.Name == c.Task.Name {
				list[slices.IndexFunc(list, func(q *question) bool { return q.Name == c.Task.Name })].number++
				continue
			}
			list = append(list, questions(c.Task, c.Object, c.Tool, q, step)...)
		}
	}
	return list
}

// apart returns a time that keeps timers of programs apart: timers of one moment have no order.
func apart(n int) time.Duration { return time.Duration(1+n) * 13 * time.Microsecond }
