package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/objectstore"
)

const (
	// streams is the number of agents that answer concurrently.
	streams = 1000
	// wordsPerReply is the number of chunks of each answer, without those of the beginning and the end.
	wordsPerReply = 100
)

// streamAgent is a chat agent that answers with words, each a chunk and a batch of its own.
type streamAgent struct {
	*chat.Agent[struct{}]
	r *streamSide
}

const streamAgents dohost.Namespace[streamAgent] = "stream-agent"

// answer sends words, each with the present time and number of syncs. At a pace they are due at times of a clock, as
// those of a model are: a late word does not delay or merge later ones.
func (a *streamAgent) answer(ctx context.Context, r *chat.Reply) error {
	next := make(chan int, 1)
	due := time.Now()
	for counted := 0; counted < a.r.words || time.Now().Before(a.r.over); {
		next <- counted
		if _, _, err := dohost.Recv(ctx, next); err != nil { // chunks so far are on their way to the disk
			return err
		}
		due = due.Add(a.r.pace)
		if err := dohost.Sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		at := time.Now()
		if err := r.Say(ctx, fmt.Sprintf("%016x.%08x ", int64(at.Sub(a.r.zero)), a.r.fs.Syncs())); err != nil {
			return err
		}
		if at.After(a.r.from) {
			counted++
		}
	}
	return nil
}

// ask requests an answer from the agent, and returns it.
func (a *streamAgent) ask(ctx context.Context, id string) (string, error) {
	m := chat.Text("u-"+id, chat.RoleUser, "recite")
	if _, err := chat.Ask(ctx, a, []chat.Message{m}, &chat.AskOptions{ID: id}); err != nil {
		return "", err
	}
	r, _, err := chat.Wait(ctx, a, id)
	if err == nil && r.Status != chat.StatusCompleted {
		err = fmt.Errorf("%s is %s: %s", id, r.Status, r.Error)
	}
	return r.Message.PlainText(), err
}

// lastReply returns the last reply.
func (a *streamAgent) lastReply(ctx context.Context, _ int) (string, error) {
	list, err := chat.Messages(ctx, a, 1)
	if err != nil || len(list) == 0 || list[0].Role != chat.RoleAssistant {
		return "", errors.Join(err, fmt.Errorf("%d messages", len(list)))
	}
	return list[0].PlainText(), nil
}

// streamSide is a side with agents that answer again and again, all concurrently, each with a client or with none.
type streamSide struct {
	*dohost.Host
	dir     string
	fs      *objectstore.FS
	zero    time.Time
	words   int            // of a reply, without those that do not count
	clients []streamClient // of each agent
	warm    int64          // chunks that were counted before the first round

	// pace is the time between the words of a stream. Words count for window, after all streams have begun, one after
	// the other, in as long, and before any ends; each stream has at least one such word. Zero: all words count.
	pace, window      time.Duration
	from, until, over time.Time
}

// streamClient is a client and the chunks that it has received.
type streamClient struct {
	ws      *websocket.Conn // nil: the program asks
	replies int
	words   int    // of all of them
	counted int64  // of those
	last    string // reply
	syncs   []int  // number of chunks by the syncs between sending and arrival
}

// maxSyncs bounds the numbers in syncs.
const maxSyncs = 64

func (b *bench) openStreamSide(ctx context.Context, n int, clients bool) (r *streamSide, err error) {
	r = &streamSide{zero: time.Now(), words: wordsPerReply, clients: make([]streamClient, n)}
	if r.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	for i := range r.clients {
		r.clients[i].syncs = make([]int, maxSyncs+1)
		if !clients {
			continue
		}
		id := streamAgents.Get(r, name(i)).ID()
		serve := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.ServeObject(w, q, id) })
		if r.clients[i].ws, _, err = sockettest.Dial(ctx, serve, "/"); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *streamSide) open() (err error) {
	r.fs = objectstore.DiskFS()
	class := chat.Bind(streamAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*streamAgent, error) {
		return &streamAgent{a, r}, nil
	}, &chat.Handlers[streamAgent, struct{}]{Reply: (*streamAgent).answer, Options: chat.Options{MaxMessages: 2}})
	r.Host, err = dohost.Open(r.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, r.fs), class)
	return err
}

// work requests answers of each agent until the time is over.
func (r *streamSide) work(ctx context.Context, m *meter) error {
	r.from = time.Now().Add(r.window)
	r.until = r.from.Add(r.window)
	r.over = r.until.Add(r.window / 4)
	return m.each(len(r.clients), func(i int, w *worker) (err error) {
		time.Sleep(r.window * time.Duration(i) / time.Duration(len(r.clients)))
		h := &r.clients[i]
		for again := true; err == nil && again && ctx.Err() == nil; again = r.pace == 0 && !w.over() {
			h.replies++
			id := strconv.Itoa(h.replies)
			if h.ws != nil {
				err = r.receive(ctx, h, id, w)
			} else {
				err = r.wait(ctx, i, id, w)
			}
		}
		return err
	})
}

// wait requests an answer from the program, and waits for the whole answer.
func (r *streamSide) wait(ctx context.Context, i int, id string, w *worker) (err error) {
	h := &r.clients[i]
	if h.last, err = dohost.Call(ctx, streamAgents.Get(r, name(i)), (*streamAgent).ask, id); err != nil {
		return err
	}
	for word := range strings.FieldsSeq(h.last) {
		if _, _, err := parseStamp(word); err != nil {
			return err
		}
		h.words++
		h.counted++
		w.ops++
	}
	return nil
}

// receive sends the client's request, and receives the chunks, which are numbered without a gap, until the end.
func (r *streamSide) receive(ctx context.Context, h *streamClient, id string, w *worker) error {
	ask := fmt.Sprintf(`{"type":"cf_agent_use_chat_request","id":%q,"init":{"method":"POST","body":`+
		`"{\"messages\":[{\"id\":\"u-%s\",\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"recite\"}]}]}"}}`, id, id)
	if err := h.ws.Write(ctx, websocket.MessageText, []byte(ask)); err != nil {
		return err
	}
	var text strings.Builder
	before := h.counted
	for next := 0; ; {
		_, data, err := h.ws.Read(ctx)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(data, []byte(`{"type":"cf_agent_use_chat_response"`)) {
			continue
		}
		if bytes.Contains(data, []byte(`"done":true`)) {
			if h.last = text.String(); !bytes.Contains(data, []byte(`"outcome":"completed"`)) {
				return fmt.Errorf("reply %s ends with %s", id, data)
			}
			return nil
		}
		if seq, ok := member(data, `"seq":`, ",}"); !ok || seq != strconv.Itoa(next) {
			return fmt.Errorf("chunk %q of %s, want %d", seq, id, next)
		}
		next++
		word, ok := member(data, `\"delta\":\"`, `\`)
		if !ok {
			continue
		}
		sent, syncs, err := parseStamp(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		text.WriteString(word)
		h.words++
		if at := r.zero.Add(sent); at.After(r.from) && (r.pace == 0 || h.counted == before || at.Before(r.until)) {
			w.did(at)
			h.counted++
			h.syncs[min(maxSyncs, max(0, int(r.fs.Syncs())-syncs))]++
		}
	}
}

// member returns the text between a name and the first of some characters.
func member(data []byte, name, end string) (string, bool) {
	_, after, ok := bytes.Cut(data, []byte(name))
	if i := bytes.IndexAny(after, end); ok && i >= 0 {
		return string(after[:i]), true
	}
	return "", false
}

// parseStamp returns the sending time of a word, and the number of syncs then.
func parseStamp(word string) (sent time.Duration, syncs int, err error) {
	at, n, _ := strings.Cut(word, ".")
	ns, err := strconv.ParseInt(at, 16, 64)
	count, err2 := strconv.ParseInt(n, 16, 64)
	return time.Duration(ns), int(count), errors.Join(err, err2)
}

// verify compares each client's last answer with the last reply of each agent on the disk.
func (r *streamSide) verify(ctx context.Context, done int64) error {
	r.disconnect()
	if err := errors.Join(r.Close(), r.open()); err != nil {
		return err
	}
	counted := -r.warm
	for i := range r.clients {
		h := &r.clients[i]
		counted += h.counted
		stored, err := dohost.Call(ctx, streamAgents.Get(r, name(i)), (*streamAgent).lastReply, 0)
		if err != nil {
			return err
		}
		if stored != h.last || h.words < h.replies*r.words || r.pace == 0 && h.words > h.replies*r.words {
			return fmt.Errorf("%s: %d chunks of %d replies were heard, want %d each; the last is stored as heard: %t",
				name(i), h.words, h.replies, r.words, stored == h.last)
		}
	}
	if counted != done {
		return fmt.Errorf("%d chunks were heard, %d counted", counted, done)
	}
	return nil
}

func (r *streamSide) disconnect() {
	for i := range r.clients {
		if ws := r.clients[i].ws; ws != nil {
			_ = ws.CloseNow() // the host may have closed it
			r.clients[i].ws = nil
		}
	}
}

func (r *streamSide) syncs() int64 { return r.fs.Syncs() }

func (r *streamSide) close() error {
	r.disconnect()
	return r.Close()
}

// syncsUntilReceived is a percentile of the number of syncs between sending and arrival of a chunk.
func (r *streamSide) syncsUntilReceived(percent int) int {
	all := make([]int, maxSyncs+1)
	total := 0
	for _, h := range r.clients {
		for n, count := range h.syncs {
			all[n] += count
			total += count
		}
	}
	upTo := 0
	return max(0, slices.IndexFunc(all, func(count int) bool {
		upTo += count
		return upTo*100 >= total*percent
	}))
}

// streamExperiment measures the cost of a chunk of a reply, and its time to its client.
func streamExperiment(ctx context.Context, b *bench) error {
	n := min(streams, b.objects/10)
	what := fmt.Sprintf("chat: %d agents stream replies of %d chunks concurrently, ", n, wordsPerReply)
	heard, err := b.stream(ctx, Row{
		ID: "P15", Unit: "chunks/s", What: what + "each to a client",
		Target: Target{Text: "≥ 0.3 of the limit", Reference: limit, MinRatio: 0.3},
	}, n, true, 0)
	if err != nil {
		return err
	}
	b.add(heard)
	alone, err := b.stream(ctx, Row{ID: "P15a", Unit: "chunks/s", What: what + "without clients"}, n, false, 0)
	if err != nil {
		return err
	}
	b.add(alone)
	pace := time.Duration(float64(n) / (heard.Sides[0].Value / 4) * float64(time.Second))
	pace = min(pace, b.duration/4) // so that each stream has words that count
	paced, err := b.stream(ctx, Row{
		ID: "P15c", Unit: "µs",
		What: fmt.Sprintf("a chunk, from its Send to its client, while %d agents stream at a pace: %s chunks/s in all, a quarter of P15",
			n, number(float64(n)/pace.Seconds())),
	}, n, true, pace)
	if err != nil {
		return err
	}
	for i := range paced.Sides {
		f := &paced.Sides[i]
		f.Value, f.Rounds = float64(f.P50)/float64(time.Microsecond), nil
	}
	b.add(paced)
	return nil
}

// stream compares streams with commits of as many bytes by as many callers.
func (b *bench) stream(ctx context.Context, r Row, n int, clients bool, pace time.Duration) (Row, error) {
	streamed, err := b.openStreamSide(ctx, n, clients)
	if err != nil {
		return r, err
	}
	if pace > 0 {
		streamed.words, streamed.pace, streamed.window = 1, pace, b.duration
	}
	warm := &meter{}
	if err := streamed.work(ctx, warm); err != nil { // to measure the bytes
		return r, errors.Join(err, streamed.close())
	}
	streamed.warm = warm.ops()
	wrote := streamed.Stats()
	commits := &raw{objects: n, callers: n, appends: true, pace: pace, size: int(wrote.Bytes / wrote.Batches)}
	if err := commits.open(b); err != nil {
		return r, errors.Join(err, streamed.close())
	}
	if r.Sides, err = b.compare(ctx, named{ours, streamed}, named{limit, commits}); err != nil {
		return r, err
	}
	r.Notes = append(r.Notes, fmt.Sprintf("limit: synced commits by %d callers, of batches of %d bytes, which is the mean of a batch "+
		"with a chunk, a question, or the beginning or end of a reply", n, commits.size))
	if pace == 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%.2f batches a chunk", float64(wrote.Batches)/float64(warm.ops())))
	}
	if clients {
		r.Notes = append(r.Notes, "p50 and p99 are from a chunk's Send to its client, which is in the process, connected by a pipe; for the limit, "+
			"of a commit")
	}
	if pace > 0 {
		b.add(streamed.groups(r.Sides[0].Checked))
	}
	return r, nil
}

// groups is a row with the number of group commits that a chunk waits for.
func (r *streamSide) groups(checked int64) Row {
	most := float64(r.syncsUntilReceived(99))
	return Row{
		ID: "P15b", Unit: "syncs", What: "syncs of the log that end between a chunk's Send and its arrival at the client, in P15c, at p99",
		Sides:  []Figure{{Side: ours, Value: most, Rounds: []float64{most}, Checked: checked}},
		Target: Target{Text: "≤ 2", MaxValue: 2},
		Notes: []string{
			fmt.Sprintf("%d at the median", r.syncsUntilReceived(50)),
			"one is under way when a chunk is sent, as a rule, and the next is that of its group commit",
		},
	}
}
