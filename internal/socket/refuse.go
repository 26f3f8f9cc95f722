package socket

import (
	"net/http"

	"github.com/coder/websocket"
)

// Refuse answers a WebSocket handshake and closes the connection with a code, without an object.
// It returns when the client has closed too, or after 5 s.
func Refuse(w http.ResponseWriter, r *http.Request, origins []string, how Closing) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: origins})
	if err != nil {
		return // Accept has answered
	}
	_ = ws.Close(websocket.StatusCode(how.Code), how.Reason) // a disconnected client needs no answer
}
