package dohost_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/sockettest"
)

// chatRoom is an object with sockets.
type chatRoom struct{ st *dohost.State }

const chatRooms dohost.Namespace[chatRoom] = "room"

// TestSocketThatEndedStaysEndedAfterRollbackOfItsClose rolls a Close back after the client has left: the object's
// handler of the end must not find the socket, or send to it.
func TestSocketThatEndedStaysEndedAfterRollbackOfItsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaving *websocket.Conn
		handled := make(chan struct{})
		hooks := &dohost.SocketHandlers[chatRoom]{
			Message: func(h *chatRoom, ctx context.Context, _ *dohost.Socket, _ dohost.Frame) error {
				rollback := errors.New("roll back")
				err := dohost.Transaction(ctx, func(ctx context.Context) error {
					if err := h.st.Sockets("")[1].Close(ctx, 4000, ""); err != nil {
						return err
					}
					leaving.CloseNow()
					synctest.Wait()
					return rollback
				})
				if err != rollback {
					t.Error(err)
				}
				return nil
			},
			Closed: func(h *chatRoom, ctx context.Context, s *dohost.Socket, _ dohost.Closing) error {
				select {
				case <-handled: // this is the other socket, at the end of the test
					return nil
				default:
				}
				defer close(handled)
				if n := len(h.st.Sockets("")); n != 1 {
					t.Errorf("%d sockets, want 1", n)
				}
				for what, err := range map[string]error{"Send": s.Send(ctx, dohost.Frame{}), "SetAttachment": s.SetAttachment(ctx, nil)} {
					if !errors.Is(err, dohost.ErrClosed) {
						t.Errorf("%s: %v", what, err)
					}
				}
				return nil
			},
		}
		h := open(t, nil, dohost.Bind(chatRooms, func(_ context.Context, st *dohost.State) (*chatRoom, error) { return &chatRoom{st}, nil },
			&dohost.Handlers[chatRoom]{
				OnHTTP:   func(r *chatRoom, w http.ResponseWriter, req *http.Request) { r.st.Accept(w, req, nil) },
				OnSocket: hooks,
			}))
		serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeObject(w, r, chatRooms.Get(h, "a").ID()) })
		stays, _, err := sockettest.Dial(t.Context(), serve, "/")
		if err != nil {
			t.Fatal(err)
		}
		defer stays.CloseNow()
		if leaving, _, err = sockettest.Dial(t.Context(), serve, "/"); err != nil {
			t.Fatal(err)
		}
		sendText(t, stays, "")
		<-handled
		synctest.Wait()
	})
}
