package hop

import "time"

// keeper is what the keeper of a link has seen so far.
type keeper struct {
	heard   uint64
	silent  time.Duration // since the last read
	pinged  bool          // since then
	asked   time.Duration // since the ping
	batches uint64
	stuck   time.Duration // in one write
	spare   time.Duration // without requests
	closing time.Duration // since the last word was out
}

// keep is the keeper's goroutine: it ends requests whose time is up, and the
// connection if its peer is lost or nobody needs it.
func (l *link) keep() {
	ticker := time.NewTicker(l.timing.tick)
	defer ticker.Stop()
	var k keeper
	for {
		select {
		case now := <-ticker.C:
			if err := k.look(l, now); err != nil {
				l.fail(err)
				return
			}
		case <-l.done:
			return
		}
	}
}

func (k *keeper) look(l *link, now time.Time) error {
	busy := l.sweep(now)
	if l.out.finished() {
		if k.closing += l.timing.tick; k.closing >= l.timing.close {
			return errEnded
		}
	}
	if batches := l.out.batches.Load(); batches%2 == 0 || batches != k.batches {
		k.batches, k.stuck = batches, 0
	} else if k.stuck += l.timing.tick; k.stuck >= l.timing.write {
		return errStuck
	}
	if busy {
		k.spare = 0
	} else if k.spare += l.timing.tick; l.serves == nil && k.spare >= l.timing.spare {
		l.retire()
	}
	return k.listen(l, busy)
}

// listen minds silence: first it asks, then it gives up.
func (k *keeper) listen(l *link, busy bool) error {
	if heard := l.heard.Load(); heard != k.heard {
		*k = keeper{heard: heard, batches: k.batches, stuck: k.stuck, spare: k.spare, closing: k.closing}
		return nil
	}
	k.silent += l.timing.tick
	patience := l.timing.idle
	if busy {
		patience = l.timing.quiet
	}
	if !k.pinged {
		if k.silent < patience {
			return nil
		}
		k.pinged = true
		return l.say(kindPing, 0, nil)
	}
	if k.asked += l.timing.tick; k.asked >= l.timing.pong {
		return errSilent
	}
	return nil
}

// sweep ends requests whose time is up and reports whether any are under way.
func (l *link) sweep(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.streams {
		if s.late(now) {
			s.fail(errTimeout)
		}
	}
	return len(l.streams) > 0
}
