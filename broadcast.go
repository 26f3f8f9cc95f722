package dohost

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/socket"
)

// Broadcast sends a frame to several of the object's sockets in one call, as Send does. It skips closed sockets
// without an error.
//
// Errors: [ErrMisuse] for a nil socket, [ErrFenced]; an error for a text that is not UTF-8, and for a socket of another object; a
// [*LimitError] for more than MaxSockets durable sockets, and for more than 1 MiB to a durable socket; [ErrOverloaded], while more than
// 64 MiB of broadcasts wait to be distributed.
func (s *State) Broadcast(ctx context.Context, f Frame, to []*Socket) error {
	if f.Text && !utf8.Valid(f.Data) {
		return errNotUTF8
	}
	for i, sock := range to {
		if sock == nil || sock.c == nil {
			return errkind.New(errkind.ErrMisuse, fmt.Sprintf("Broadcast: socket %d is nil", i))
		}
		if sock.c.ID() != s.ID() {
			return fmt.Errorf("dohost: Broadcast to a socket of another object, %s", sock.c.ID())
		}
	}
	cs, durable := make([]*socket.Conn, 0, len(to)), []*relayed(nil)
	for _, sock := range to {
		if d := relayedOf(sock.c); d == nil {
			cs = append(cs, sock.c)
		} else if !sock.c.Muted() {
			durable = append(durable, d)
		}
	}
	if err := sendDurable(ctx, s, durable, f); err != nil || len(cs) == 0 && len(durable) > 0 {
		return err
	}
	packed := socket.Pack(f)
	b, err := socket.NewBroadcast(cs, packed)
	if err != nil {
		return err
	}
	err = s.rt().EmitOutput(ctx, len(packed), func(err error) {
		if err == nil {
			b.Send()
		} else {
			b.Drop()
		}
	})
	if err != nil {
		b.Drop()
	}
	return err
}
