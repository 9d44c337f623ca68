package moves

import "celld/store/tenant"

// Step is the transition function: the record as it is after an event that stands
// in the given log entry. A refusal changes nothing, and says why. An event that
// has had its effect before changes nothing either and is no error, so that
// whoever repeats it learns how far the move is.
func Step(m Move, e Event, at Entry) (Move, error) {
	if err := e.Check(); err != nil {
		return m, err
	}
	if e.Move != m.ID || e.Epoch != m.EpochTo {
		return m, refuse("other-move", "the event is of the move %s at epoch %d, the record of %s at %d", e.Move, e.Epoch, m.ID, m.EpochTo)
	}
	if err := admit(m, e, at); err != nil {
		return m, err
	}
	next, err := take(m, e, at)
	if err != nil || next == m {
		return m, err
	}
	next.ChangedAt = at.At
	if err := next.Check(); err != nil {
		return m, err
	}
	return next, nil
}

// admit refuses who may not speak: an executor that another one has followed, an
// operator who tells what only an executor can know.
func admit(m Move, e Event, at Entry) error {
	switch {
	case m.Undo != "" && e.What != Claims:
		return refuse("rollback-running", "move %s is being or was undone by the rollback %s", m.ID, m.Undo)
	case e.Term == 0 && !(at.Operator && (e.What == GivesUp || e.What == Accepts || e.What == ClosesWindow)):
		return refuse("no-executor", "only the executor that has claimed the move may tell that it %s", e.What)
	case e.Term == 0:
		return nil
	case e.What == Accepts:
		return refuse("operator-only", "only an operator accepts a finding")
	case e.Term < m.Term, e.What == Claims && e.Term == m.Term && at.Actor != m.Executor:
		return refuse("stale-executor", "%s drives move %s since term %d; the event is of term %d", m.Executor, m.ID, m.Term, e.Term)
	case e.Term > m.Term && e.What != Claims:
		return refuse("unclaimed", "claim move %s for term %d first", m.ID, e.Term)
	}
	return nil
}

func take(m Move, e Event, at Entry) (Move, error) {
	switch e.What {
	case Claims:
		m.Term, m.Executor = e.Term, at.Actor
		return m, nil
	case Imported, Copied, Shipped, CaughtUp, Broke:
		return takeCopying(m, e, at)
	case CopyThere:
		return takeCopyThere(m, e, at)
	case Froze:
		return takeFroze(m, e)
	case Proved:
		return takeProved(m, e, at)
	case GivesUp:
		return takeGivesUp(m, e, at)
	case SourceForgot, DestinationForgot:
		return takeForgot(m, e, at)
	case Activated:
		return takeActivated(m, e, at)
	case Retired:
		now, err := m.at(Activating)
		if now {
			m.State, m.Copy = Verifying, Kept
		}
		return m, err
	case Compared, Accepts:
		return takeCompared(m, e)
	default: // ClosesWindow, Drops: Check has refused the rest
		return takeWindow(m, e)
	}
}

// at reports whether the move is in s now. Where it is past s, the event has had
// its effect; where it is not there yet, or was aborted, the event is refused.
func (m Move) at(s State) (bool, error) {
	switch {
	case m.State == s:
		return true, nil
	case m.State.Aborted():
		return false, refuse("aborted", "ABORT was decided for move %s; it stays so", m.ID)
	case m.State < s:
		return false, refuse("too-early", "move %s is only %s, not yet %s", m.ID, m.State, s)
	}
	return false, nil
}

// contradicts refuses a repetition that tells something else than the first time.
func contradicts(m Move, what string) error {
	return refuse("contradiction", "move %s has another %s on record; look at the cells before anything is done by hand", m.ID, what)
}

// takeCopying is the way of a transfer up to the freeze.
func takeCopying(m Move, e Event, at Entry) (Move, error) {
	if m.Kind != Transfer {
		return m, refuse("other-kind", "a rollback copies nothing")
	}
	if e.What == Imported {
		now, err := m.at(Planned)
		if now {
			m.State, m.Attempt = Copying, 1
		}
		return m, err
	}
	if m.State.Aborted() {
		_, err := m.at(Copying)
		return m, err
	}
	if e.Attempt != m.Attempt {
		return m, refuse("stale-attempt", "the copy of move %s is at attempt %d; the event is of attempt %d", m.ID, m.Attempt, e.Attempt)
	}
	switch e.What {
	case Copied:
		now, err := m.at(Copying)
		if now {
			m.State, m.Report.Bytes = CatchingUp, e.Bytes
		}
		return m, err
	case Shipped:
		now, err := m.at(CatchingUp)
		if now && e.Rounds > m.Report.Rounds {
			m.Report.Bytes, m.Report.Rounds = e.Bytes, e.Rounds
		}
		return m, err
	case CaughtUp:
		now, err := m.at(CatchingUp)
		if !now {
			return m, err
		}
		if !e.Proof.equal() {
			return m, refuse("copy-differs", "the staged copy of move %s is not equal to its source; start the copy over", m.ID)
		}
		m.Report.Bytes, m.Report.Rounds, m.Report.Tail, m.Report.Before = e.Bytes, e.Rounds, e.Tail, e.Proof.Source
		return freezing(m, at), nil
	}
	return broke(m, e, at)
}

// freezing is logged before the freeze is sent: whoever resumes the move must know
// that it may have been applied.
func freezing(m Move, at Entry) Move {
	m.State, m.Report.FreezeAt = Freezing, at.At
	return m
}

// broke starts the copy over as long as writers do not wait for it. After that a
// second copy would make the pause as long as a copy takes.
func broke(m Move, e Event, at Entry) (Move, error) {
	switch {
	case m.State.Committed():
		return m, refuse("committed", "COMMIT was decided for move %s; it needs no copy any more", m.ID)
	case m.State >= Freezing, m.Attempt == MaxAttempts:
		return abort(m, e, at), nil
	}
	m.State, m.Attempt = Copying, m.Attempt+1
	m.Report.Wasted += m.Report.Bytes
	m.Report.Bytes, m.Report.Rounds = 0, 0
	return m, nil
}

func takeCopyThere(m Move, e Event, at Entry) (Move, error) {
	if m.Kind != Rollback {
		return m, refuse("other-kind", "a transfer makes its copy")
	}
	now, err := m.at(Planned)
	if !now {
		return m, err
	}
	if err := provesOldCopy(m, e.Proof); err != nil {
		return m, err
	}
	return freezing(m, at), nil
}

func takeFroze(m Move, e Event) (Move, error) {
	if e.At.Index == 0 {
		return m, bad("watermark", "must have the index of the freeze")
	}
	now, err := m.at(Freezing)
	switch {
	case now:
		m.State, m.W = Frozen, e.At
	case err == nil && e.At != m.W:
		err = contradicts(m, "watermark")
	}
	return m, err
}

// takeProved is the decision for COMMIT.
func takeProved(m Move, e Event, at Entry) (Move, error) {
	now, err := m.at(Frozen)
	if !now {
		return m, err
	}
	if e.Attempt != m.Attempt {
		return m, refuse("stale-attempt", "the copy of move %s is at attempt %d; the proof is of attempt %d", m.ID, m.Attempt, e.Attempt)
	}
	if m.Kind == Rollback {
		err = provesOldCopy(m, e.Proof)
	} else {
		err = provesStaging(m, e.Proof)
	}
	if err != nil {
		return m, err
	}
	m.State, m.Report.Pages = Committed, e.Proof.Staged
	m.Decision = Decision{Commit: true, Index: at.Index, At: at.At, By: at.Actor}
	return m, nil
}

func provesStaging(m Move, p Proof) error {
	switch {
	case p.State != tenant.Frozen || p.Epoch != m.EpochFrom:
		return unproved("the staged copy of move %s does not show the freeze at epoch %d", m.ID, m.EpochFrom)
	case p.W != m.W:
		return unproved("the staged copy of move %s ends at index %d and sequence %d, W is %d and %d", m.ID, p.W.Index, p.W.Sequence, m.W.Index, m.W.Sequence)
	case !p.equal():
		return unproved("the pages of the staged copy of move %s are not those of the source", m.ID)
	case !p.majority():
		return unproved("the staged copy of move %s is on %d of %d replicas, which is no majority", m.ID, p.Durable, p.Voters)
	}
	return nil
}

func provesOldCopy(m Move, p Proof) error {
	switch {
	case p.State != tenant.Retired || p.Epoch != m.CopyEpoch || p.W != m.CopyW:
		return unproved("the copy for the rollback %s is not the one that move %s retired", m.ID, m.Of)
	case !p.majority():
		return unproved("the copy for the rollback %s is on %d of %d replicas, which is no majority", m.ID, p.Durable, p.Voters)
	}
	return nil
}

func unproved(format string, args ...any) error { return refuse("unproved", format, args...) }

func takeGivesUp(m Move, e Event, at Entry) (Move, error) {
	switch {
	case m.State.Aborted():
		return m, nil
	case m.State.Committed():
		return m, refuse("committed", "COMMIT was decided for move %s; roll it back or move the tenant again", m.ID)
	}
	return abort(m, e, at), nil
}

// abort is the decision for ABORT. The epoch of the move is burnt by it.
func abort(m Move, e Event, at Entry) Move {
	m.State = Aborting
	m.Decision = Decision{Index: at.Index, At: at.At, By: at.Actor, Why: e.Reason}
	return m
}

func takeForgot(m Move, e Event, at Entry) (Move, error) {
	switch {
	case m.State == Aborted:
		return m, nil
	case m.State != Aborting:
		return m, refuse("not-aborted", "no ABORT was decided for move %s", m.ID)
	case e.What == DestinationForgot:
		m.To.Done = true
	case !m.From.Done:
		m.From.Done = true
		if m.Report.FreezeAt != 0 {
			m = serving(m, e, at)
		}
	}
	if m.From.Done && m.To.Done {
		m.State = Aborted
	}
	return m, nil
}

// serving ends the pause. An executor that saw both ends knows it best; otherwise
// it is bounded by the log's times.
func serving(m Move, e Event, at Entry) Move {
	m.Report.ActiveAt, m.Report.PauseMicros = at.At, e.Pause
	if e.Pause == 0 && at.At > m.Report.FreezeAt {
		m.Report.PauseMicros = uint64(at.At - m.Report.FreezeAt)
	}
	return m
}

func takeActivated(m Move, e Event, at Entry) (Move, error) {
	if e.At.Index == 0 {
		return m, bad("watermark", "must have the index of the activation")
	}
	now, err := m.at(Committed)
	switch {
	case now:
		m.State, m.Arrived = Activating, e.At
		m = serving(m, e, at)
	case err == nil && e.At != m.Arrived:
		err = contradicts(m, "activation")
	}
	return m, err
}

// takeCompared ends a move, or keeps it where it is until an operator accepts the
// finding or rolls back.
func takeCompared(m Move, e Event) (Move, error) {
	now, err := m.at(Verifying)
	switch {
	case !now:
		return m, err
	case e.What == Accepts && m.Report.Finding == "":
		return m, refuse("nothing-to-accept", "move %s has no finding", m.ID)
	case e.What == Accepts:
		m.State, m.Report.Accepted = Complete, e.Reason
	case m.Report.Finding != "" && e.Reason == "" && e.Proof.equal():
		return m, refuse("finding-stands", "move %s has a finding; an operator accepts it or rolls the move back", m.ID)
	case m.Report.Finding != "":
		return m, nil
	case e.Reason != "":
		m.Report.Finding = e.Reason
	case !e.Proof.equal():
		m.Report.Finding = "the contents of the two cells are not equal"
	default:
		m.State, m.Report.After, m.Report.Rows = Complete, e.Proof.Staged, e.Rows
	}
	return m, nil
}

// takeWindow ends the rollback window before anything is dropped: a rollback that
// is planned finds the copy, or is refused.
func takeWindow(m Move, e Event) (Move, error) {
	if now, err := m.at(Complete); !now {
		return m, err
	}
	switch {
	case e.What == ClosesWindow && m.Copy == Kept:
		m.Copy = Dropping
	case e.What == Drops && m.Copy == Kept:
		return m, refuse("window-open", "the copy that move %s left is kept; close the window first", m.ID)
	case e.What == Drops:
		m.Copy = Dropped
	}
	return m, nil
}
