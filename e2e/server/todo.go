//go:build e2e

package main

import (
	"context"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
)

// todo is a plain object with rows that clients follow.
type todo struct{ st *dohost.State }

// item is a row of a todo.
type item struct {
	ID   string `json:"id"`
	N    int    `json:"n"`
	TxID string `json:"txid"`
}

var items = dohost.Collection[item]{
	Name: "items", Key: func(i item) string { return i.ID }, Feed: &dohost.Feed{Name: "todo", Values: true},
}

func todoClass() dohost.Class {
	return dohost.Bind(dohost.Namespace[todo]("Todo"),
		func(_ context.Context, st *dohost.State) (*todo, error) { return &todo{st}, nil },
		&dohost.Handlers[todo]{OnHTTP: (*todo).serve}, dohost.Expose("put", (*todo).put), dohost.Expose("drop", (*todo).drop))
}

func (t *todo) put(ctx context.Context, i item) (bool, error) {
	return true, items.Put(ctx, t.st.Storage(), i)
}

func (t *todo) drop(ctx context.Context, id string) (bool, error) {
	return items.Delete(ctx, t.st.Storage(), id)
}

func (t *todo) serve(w http.ResponseWriter, r *http.Request) {
	rows := streams.Rows(&items, &streams.RowsOptions[item]{TxID: func(i item) string { return i.TxID }})
	if err := streams.ServeFeed(w, r, t.st.Storage(), nil, rows); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
