package dirfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
)

// Numbers of the commands. Append only; a retired one keeps its slot.
const (
	NumCreateUser raftfsm.Number = iota + 1
	NumSetPassword
	NumCreateToken
	NumRevokeToken
	NumOpenSession
	NumCloseSession
	NumCreateTenant
	NumActivateTenant
	NumSetSuspended
	NumCreateInvite
	NumRevokeInvite
	NumAcceptInvite
	NumSetRole
	NumRemoveMember
	NumPutCell
	NumRecord
	NumPrune
	NumPutNode
	NumRemoveNode
	NumMark
	NumPlanMove
	NumPlanRollback
	NumMoveEvent
	NumPruneMoves
)

// Table is every command of the directory. touched is told the sequence of each
// command that changes or takes away something that may be remembered: a
// credential, a membership, a placement or a cell. It is called inside the
// command's transaction, so it must be quick and may not fail. look is called for
// each mark; nil for nobody.
func Table(touched func(sequence uint64), look raftfsm.Look) *raftfsm.Table {
	h := handlers{touched: touched}
	return raftfsm.NewTable(
		raftfsm.Define(NumCreateUser, "CreateUser", raftfsm.Control, createUser),
		raftfsm.Define(NumSetPassword, "SetPassword", raftfsm.Control, h.setPassword),
		raftfsm.Define(NumCreateToken, "CreateToken", raftfsm.Control, createToken),
		raftfsm.Define(NumRevokeToken, "RevokeToken", raftfsm.Control, h.revokeToken),
		raftfsm.Define(NumOpenSession, "OpenSession", raftfsm.Control, h.openSession),
		raftfsm.Define(NumCloseSession, "CloseSession", raftfsm.Control, h.closeSession),
		raftfsm.Define(NumCreateTenant, "CreateTenant", raftfsm.Control, createTenant),
		raftfsm.Define(NumActivateTenant, "ActivateTenant", raftfsm.Control, h.activateTenant),
		raftfsm.Define(NumSetSuspended, "SetSuspended", raftfsm.Control, h.setSuspended),
		raftfsm.Define(NumCreateInvite, "CreateInvite", raftfsm.Control, createInvite),
		raftfsm.Define(NumRevokeInvite, "RevokeInvite", raftfsm.Control, revokeInvite),
		raftfsm.Define(NumAcceptInvite, "AcceptInvite", raftfsm.Control, acceptInvite),
		raftfsm.Define(NumSetRole, "SetRole", raftfsm.Control, h.setRole),
		raftfsm.Define(NumRemoveMember, "RemoveMember", raftfsm.Control, h.removeMember),
		raftfsm.Define(NumPutCell, "PutCell", raftfsm.Control, h.putCell),
		raftfsm.Define(NumRecord, "Record", raftfsm.Control, record),
		raftfsm.Define(NumPrune, "Prune", raftfsm.Control, prune),
		raftfsm.Define(NumPutNode, "PutNode", raftfsm.Control, h.putNode),
		raftfsm.Define(NumRemoveNode, "RemoveNode", raftfsm.Control, h.removeNode),
		raftfsm.DefineMark(NumMark, "Mark", look),
		raftfsm.Define(NumPlanMove, "PlanMove", raftfsm.Control, h.planMove),
		raftfsm.Define(NumPlanRollback, "PlanRollback", raftfsm.Control, h.planRollback),
		raftfsm.Define(NumMoveEvent, "MoveEvent", raftfsm.Control, h.moveEvent),
		raftfsm.Define(NumPruneMoves, "PruneMoves", raftfsm.Control, pruneMoves),
	)
}

type handlers struct{ touched func(uint64) }

// touch is a handler's last step: what is refused must not drop what others
// remember.
func (h handlers) touch(tx *store.Tx) { h.touched(tx.Control().Sequence + 1) }

// Guard is the fence of the directory's own file: its commands have no target.
// Who may do what is each handler's business, because it needs the body.
func Guard(_ *store.Tx, _ raftfsm.Definition, c *raftfsm.Command) error {
	if c.Target != "" || c.Epoch != 0 {
		return fault.New(fault.Impossible, "no-such-target", "the directory has no file of that name")
	}
	return nil
}
