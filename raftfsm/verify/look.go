package verify

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"celld/raftfsm"
	"celld/store"
)

// maxMark bounds a mark's id.
const maxMark = 64

// Look is what apply calls at a mark: it pins the file and leaves the rest to a
// goroutine. While the log is applied again after a start nobody waits for marks.
func (v *Verifier) Look(c *raftfsm.Command, m raftfsm.Mark, index uint64, f *store.File, why error) {
	v.schedule.mark(c.Target, c.At)
	g := v.group.Load()
	if g == nil || !(*g).Ready() || m.ID == "" || len(m.ID) > maxMark {
		return
	}
	r := Result{Mark: m.ID, Target: c.Target, State: Running, Index: index}
	if !v.results.add(r) {
		return
	}
	if f == nil {
		v.miss(r, why)
		return
	}
	if !v.begin() {
		v.miss(r, errBusy)
		return
	}
	pin, release, err := v.pin(c.Target, f)
	if err != nil {
		v.noticed(c.Target, err)
		v.miss(r, err)
		v.end()
		return
	}
	rate := v.cfg.Rate
	if m.Urgent {
		rate *= urgentRate
	}
	go func() {
		defer v.end()
		r, err := v.digest(r, pin, rate)
		err = errors.Join(err, pin.Close())
		release()
		if err != nil {
			v.noticed(r.Target, err)
			v.miss(r, err)
			return
		}
		v.results.finish(r)
		v.compare(r)
	}()
}

var errReplaced = errors.New("the file is being replaced")

// pin keeps the file and its state until the returned function is called.
func (v *Verifier) pin(target string, f *store.File) (*store.Pin, func(), error) {
	if v.pins.Add(1) > maxPins {
		v.pins.Add(-1)
		return nil, nil, errBusy
	}
	giveBack, ok := v.cfg.Files.Keep(target, f)
	if !ok {
		v.pins.Add(-1)
		return nil, nil, errReplaced
	}
	pin, err := f.Pin()
	if err != nil {
		giveBack()
		v.pins.Add(-1)
		return nil, nil, err
	}
	return pin, func() { giveBack(); v.pins.Add(-1) }, nil
}

// digest reads the pinned state at no more than rate bytes a second.
func (v *Verifier) digest(r Result, pin *store.Pin, rate int64) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(v.ctx, pinTime, errTooLong)
	defer cancel()
	began, counted := time.Now(), int64(0)
	sum, rows, err := pin.DigestPaced(ctx, func(rows, bytes int64) {
		v.results.progress(r.Mark, rows, bytes)
		v.metrics.bytes.Add(float64(bytes - counted))
		counted, r.Bytes = bytes, bytes
		await(ctx, time.Duration(float64(bytes)/float64(rate)*float64(time.Second))-time.Since(began))
	})
	ctl := pin.Control()
	r.Applied, r.Sequence, r.Rows = ctl.Applied, ctl.Sequence, rows
	if err == nil {
		r.State, r.Digest = Done, hex.EncodeToString(sum[:])
	}
	return r, err
}

// miss notes that this replica has no digest at a mark.
func (v *Verifier) miss(r Result, why error) {
	r.State, r.Reason = Missed, why.Error()
	v.metrics.missed.Inc()
	v.results.finish(r)
	v.results.judge(r.Mark, Judgement{Verdict: Incomplete})
	v.schedule.judge(r.Target, Incomplete)
	if v.ctx.Err() == nil {
		v.cfg.Logger.Info("no digest at a mark", "target", r.Target, "index", r.Index, "error", why)
	}
}

func (v *Verifier) noticed(target string, err error) {
	if v.cfg.Noticed != nil && store.IsCorrupt(err) {
		v.cfg.Noticed(target, err)
	}
}

// await waits for d, or until ctx ends.
func await(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
