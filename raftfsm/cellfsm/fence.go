package cellfsm

import (
	"fmt"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// ErrNotHere refuses a command or a read for a tenant that the cell does not
// store.
var ErrNotHere = fault.New(fault.Moved, "placement-changed", "this cell does not store the tenant")

// ErrFenced refuses a write or a read of a tenant that a move holds.
var ErrFenced = fault.New(fault.Fenced, "tenant-frozen", "the tenant is being moved; retry")

// errUnsettled refuses background work on a tenant that has just arrived.
var errUnsettled = fault.New(fault.Conflict, "tenant-unsettled", "a move has brought the tenant, and no member has written since")

func errOtherEpoch(have tenant.Epoch) error {
	return fault.New(fault.Moved, "placement-changed", "the tenant's epoch is another one").With("epoch", uint64(have))
}

// Guard is the fence: it runs in the command's own transaction, before its key
// is looked up and before its handler.
func (s *Space) Guard(tx *store.Tx, d raftfsm.Definition, c *raftfsm.Command) error {
	ctl := tx.Control()
	if string(ctl.UID) != c.Target {
		return fmt.Errorf("command %s for %q met the file of %q", d.Name, c.Target, ctl.UID)
	}
	switch d.Class {
	case raftfsm.Control:
		if c.Target != "" {
			return fault.New(fault.Invalid, "wrong-target", "this command is for the cell itself")
		}
		return nil
	case raftfsm.TenantWrite:
		if c.Target == "" {
			return fault.New(fault.Invalid, "wrong-target", "this command is for a tenant")
		}
		key, err := s.Key()
		if err != nil {
			return err
		}
		s.watch(tx, ctl.UID)
		if err := Admit(*ctl, key, tenant.Epoch(c.Epoch)); err != nil {
			return err
		}
		if d.Number == PruneNumber {
			return settled(ctl)
		}
		ctl.Move = "" // kept with the command's effect, if it has one
		return nil
	}
	return fmt.Errorf("command %s has the unknown class %d", d.Name, d.Class)
}

// Key is the cell's key, "" before InitCell. Once there it never changes, and
// whoever uses a file may ask for it.
func (s *Space) Key() (tenant.CellKey, error) {
	if key := s.key.Load(); key != nil {
		return *key, nil
	}
	f, release, err := s.Acquire("")
	if err != nil {
		return "", err
	}
	defer release()
	key := f.Control().CellKey
	if key != "" {
		s.key.Store(&key)
	}
	return key, nil
}

// AdmitStale is Admit for a read that may be stale: it may see a FROZEN tenant too,
// while nobody knows yet whether the tenant has another writer.
func AdmitStale(ctl store.Control, key tenant.CellKey, epoch tenant.Epoch) error {
	if ctl.State == tenant.Frozen {
		ctl.State = tenant.Active
	}
	return Admit(ctl, key, epoch)
}

// Admit is the fence itself: a request that was authorized for epoch may touch a
// file only where the control row names this cell's key and that epoch, and is
// ACTIVE. The refusal tells the epoch that the cell knows.
func Admit(ctl store.Control, key tenant.CellKey, epoch tenant.Epoch) error {
	switch {
	case key == "" || ctl.CellKey != key, ctl.State == tenant.Importing, ctl.State == tenant.Retired:
		return ErrNotHere.With("epoch", uint64(ctl.Epoch))
	case ctl.Epoch != epoch:
		return errOtherEpoch(ctl.Epoch)
	case ctl.State == tenant.Frozen:
		return ErrFenced.With("epoch", uint64(ctl.Epoch))
	case ctl.State != tenant.Active:
		return fmt.Errorf("control row of %s has the state %q", ctl.UID, ctl.State)
	}
	return nil
}
