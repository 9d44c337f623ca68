package store

import (
	"context"
	"runtime"
)

// Slots is the semaphore around calls into SQLite that all files of a process
// share: each running call holds a thread, and a thousand of them at once would
// only contend. Scans, which may take seconds, have half of the slots at the most,
// so that updates and short reads never wait for them alone. A nil Slots is no
// bound.
type Slots struct{ calls, scans chan struct{} }

// NewSlots makes slots for eight calls a processor.
func NewSlots() *Slots { return newSlots(8 * runtime.GOMAXPROCS(0)) }

func newSlots(n int) *Slots {
	return &Slots{calls: make(chan struct{}, n), scans: make(chan struct{}, max(n/2, 1))}
}

func (s *Slots) enter() {
	if s != nil {
		s.calls <- struct{}{}
	}
}

func (s *Slots) leave() {
	if s != nil {
		<-s.calls
	}
}

// scan takes one of the scans' places, before anything else is held, for as long
// as ctx lasts.
func (s *Slots) scan(ctx context.Context) (done func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s.scans <- struct{}{}:
		return func() { <-s.scans }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
