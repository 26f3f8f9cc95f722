package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// BudgetRows returns the numbers of the stored questions about budgets, and of the messages that wait for them.
func BudgetRows(ctx context.Context, s *dohost.Storage) (asked, waiting int, err error) {
	asked, err = questions.Count(ctx, s, nil)
	waiting, waitErr := waits.Count(ctx, s, nil)
	return asked, waiting, errors.Join(err, waitErr)
}

// AskForDecision is the end of a cycle that has found a budget exhausted.
func (a *Agent) AskForDecision(ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message]) error {
	_, err := a.askForDecision(ctx, of, messages, pending)
	return err
}

// WaitsPerBatch is the number of messages with a wait that one batch ends after the end of a question.
const WaitsPerBatch = waitsPerBatch

// ReviewQuestions is the beginning of a cycle with messages.
func (a *Agent) ReviewQuestions(ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message]) error {
	return a.reviewQuestions(ctx, of, messages, pending)
}

// AgeBudgetEvents makes the events of the audit log older.
func AgeBudgetEvents(ctx context.Context, s *dohost.Storage, by time.Duration) error {
	rows, err := budgetEvents.List(ctx, s, nil)
	for _, row := range rows {
		row.Value.At -= by.Milliseconds()
		err = errors.Join(err, budgetEvents.Put(ctx, s, row.Value))
	}
	return err
}

// MaxBudgetEvents bounds the number of the events of the audit log.
const MaxBudgetEvents = maxBudgetEvents

// NumberBudgetEvent gives an event of the audit log another number.
func NumberBudgetEvent(ctx context.Context, s *dohost.Storage, from, to uint64) error {
	key := budgetEvents.Key(budgetEventRow{Number: from})
	row, _, err := budgetEvents.Get(ctx, s, key)
	row.Value.Number = to
	_, deleteErr := budgetEvents.Delete(ctx, s, key)
	return errors.Join(err, deleteErr, budgetEvents.Insert(ctx, s, row.Value))
}

// UnknownHook returns the hook that records messages to unknown names, in a class whose agents have these names.
func UnknownHook(messages *dohost.Collection[Message], names ...string) func(context.Context, Ref, *dohost.RowWrite) error {
	u := unknownNames{messages: map[string]*dohost.Collection[Message]{messages.Name: messages}}
	for _, name := range names {
		u.parts = append(u.parts, classPart{collection: messages.Name, index: pendingIndex, prefix: nameKey(name), messages: messages})
	}
	return u.rowWritten
}
