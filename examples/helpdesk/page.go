package helpdesk

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// Rooms is the namespace of Room objects.
const Rooms dohost.Namespace[Room] = "helproom"

// Room has two agents over one collection, and a page that shows all messages live and sends messages to a chosen agent. Each client of a
// room reads all of it, and each message has the sender "visitor": a program with several users sets From to the user that it has authenticated.
type Room struct{ *agent.Agent[struct{}] }

// RoomMessages are the messages and the responses of a Room.
var RoomMessages = inbox.Messages("messages", &dohost.Feed{Name: "messages", Keep: 1000, Values: true, Before: true})

// targets are the agents of a room.
var targets = []string{"billing", "network"}

// maxText bounds a message of a client, in bytes.
const maxText = 4 << 10

//go:embed page.html
var page []byte

// RoomClass returns the class of rooms whose agents answer with a model.
func RoomClass(m chat.Model) dohost.Class {
	entries, kinds := []agent.Entry[Room]{}, []ledger.AnyKind{}
	for _, name := range targets {
		a := &inbox.Agent{Name: name, Instructions: "You answer questions about " + name + ".", Model: m}
		entries, kinds = append(entries, inbox.On(inbox.ForMessages[Room](&RoomMessages, a))), append(kinds, a.Kinds()...)
	}
	return agent.Bind(Rooms, func(_ context.Context, a *agent.Agent[struct{}]) (*Room, error) { return &Room{a}, nil },
		&agent.Handlers[Room, struct{}]{
			OnRequest:  (*Room).serve,
			Extensions: []dohost.ClassExtension{ledger.Declare(kinds...)},
		}, entries...)
}

// serve answers GET with the page, GET with ?watch with the messages and their changes, and POST with a stored message.
func (o *Room) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		o.send(w, r)
	case r.Method != http.MethodGet:
		http.Error(w, "want GET or POST", http.StatusMethodNotAllowed)
	case r.URL.Query().Has("watch"):
		if err := RoomMessages.ServeWatch(w, r, o.Storage(), nil, nil); err != nil {
			http.Error(w, "cannot watch", http.StatusInternalServerError)
		}
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}
}

// send stores a message. The client chooses only the text and the agent. A page of another site cannot post this content type, since a browser
// first asks the server for permission (CORS), and the room grants none.
func (o *Room) send(w http.ResponseWriter, r *http.Request) {
	to := r.URL.Query().Get("to")
	if !slices.Contains(targets, to) || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "want an agent of the room, and JSON", http.StatusBadRequest)
		return
	}
	var text string
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxText)).Decode(&text); err != nil || text == "" {
		http.Error(w, "want a text of at most 4 KiB", http.StatusBadRequest)
		return
	}
	m := inbox.Message{To: to, From: "visitor", Role: chat.RoleUser, Content: text}
	if _, err := inbox.Send(r.Context(), o.Storage(), &RoomMessages, m); err != nil {
		http.Error(w, "cannot store the message", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
