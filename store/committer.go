package store

import (
	"sync"
	"time"
)

// committer ends transactions that have been open for some time, the oldest
// first, and without waiting while all of them together hold much memory. A file
// that was closed meanwhile has committed by itself.
type committer struct {
	age    time.Duration
	budget *budget
	commit func(*handle) error

	mu    sync.Mutex
	queue []opened

	wake chan struct{} // holds one; the queue is no longer empty, or there is no time
	stop chan struct{}
	over chan struct{}
}

type opened struct {
	handle *handle
	at     time.Time
}

func newCommitter(age time.Duration, b *budget, commit func(*handle) error) *committer {
	c := &committer{
		age: age, budget: b, commit: commit,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), over: make(chan struct{}),
	}
	go c.run()
	return c
}

func (c *committer) add(e *handle) {
	c.mu.Lock()
	c.queue = append(c.queue, opened{e, time.Now()})
	first := len(c.queue) == 1
	c.mu.Unlock()
	if first {
		c.hurry()
	}
}

// hurry has the goroutine look again.
func (c *committer) hurry() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) run() {
	defer close(c.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var calm time.Time // until then nothing is gained by hurry
	for {
		c.mu.Lock()
		var first opened
		if len(c.queue) > 0 {
			first = c.queue[0]
		}
		c.mu.Unlock()
		if first.handle == nil {
			select {
			case <-c.wake:
			case <-c.stop:
				return
			}
			continue
		}
		if !c.budget.pressed() || time.Now().Before(calm) {
			timer.Reset(time.Until(first.at.Add(c.age)))
			select {
			case <-timer.C:
			case <-c.wake:
				continue
			case <-c.stop:
				return
			}
		}
		c.mu.Lock()
		c.queue[0] = opened{}
		c.queue = c.queue[1:]
		c.mu.Unlock()
		if c.commit(first.handle) != nil {
			calm = time.Now().Add(c.age)
		}
	}
}

// close ends the goroutine. Open transactions are left to the closing of their
// files.
func (c *committer) close() {
	close(c.stop)
	<-c.over
}
