package cellfsm

import "celld/raftfsm"

// Numbers of the cell's commands. They are append-only: a number keeps its
// meaning, and a retired one keeps its slot (testdata/commands.golden).
const (
	InitCellNumber        raftfsm.Number = 1
	ProvisionTenantNumber raftfsm.Number = 2
	CreateCustomerNumber  raftfsm.Number = 3
	UpdateCustomerNumber  raftfsm.Number = 4
	CreateInvoiceNumber   raftfsm.Number = 5
	UpdateInvoiceNumber   raftfsm.Number = 6
	MarkNumber            raftfsm.Number = 7
	PruneNumber           raftfsm.Number = 8
	MoveStartNumber       raftfsm.Number = 9
	MoveImportNumber      raftfsm.Number = 10
	MoveFreezeNumber      raftfsm.Number = 11
	MoveThawNumber        raftfsm.Number = 12
	MoveActivateNumber    raftfsm.Number = 13
	MoveRetireNumber      raftfsm.Number = 14
	MoveDropNumber        raftfsm.Number = 15
	MoveAbortNumber       raftfsm.Number = 16
	MovePruneNumber       raftfsm.Number = 17
)

// FeatureLevel is the level that a cell made by this program starts with. New
// numbers, and new meanings of old ones, are used above a higher level only.
const FeatureLevel = 1

// Commands is the table of every command that a cell applies to the files of
// space.
func Commands(space *Space) *raftfsm.Table {
	return raftfsm.NewTable(
		raftfsm.Define(InitCellNumber, "init-cell", raftfsm.Control, initCell),
		raftfsm.Define(ProvisionTenantNumber, "provision-tenant", raftfsm.Control, space.provisionTenant),
		raftfsm.DefinePlanned(CreateCustomerNumber, "create-customer", raftfsm.TenantWrite, createCustomer),
		raftfsm.DefinePlanned(UpdateCustomerNumber, "update-customer", raftfsm.TenantWrite, updateCustomer),
		raftfsm.DefinePlanned(CreateInvoiceNumber, "create-invoice", raftfsm.TenantWrite, createInvoice),
		raftfsm.DefinePlanned(UpdateInvoiceNumber, "update-invoice", raftfsm.TenantWrite, updateInvoice),
		raftfsm.DefineMark(MarkNumber, "mark", space.look),
		raftfsm.Define(PruneNumber, "prune", raftfsm.TenantWrite, prune),
		raftfsm.Define(MoveStartNumber, "move-start", raftfsm.Control, space.moveStart),
		raftfsm.Define(MoveImportNumber, "move-import", raftfsm.Control, space.moveImport),
		raftfsm.Define(MoveFreezeNumber, "move-freeze", raftfsm.Control, space.moveFreeze),
		raftfsm.Define(MoveThawNumber, "move-thaw", raftfsm.Control, space.moveThaw),
		raftfsm.Define(MoveActivateNumber, "move-activate", raftfsm.Control, space.moveActivate),
		raftfsm.Define(MoveRetireNumber, "move-retire", raftfsm.Control, space.moveRetire),
		raftfsm.Define(MoveDropNumber, "move-drop", raftfsm.Control, space.moveDrop),
		raftfsm.Define(MoveAbortNumber, "move-abort", raftfsm.Control, space.moveAbort),
		raftfsm.Define(MovePruneNumber, "move-prune", raftfsm.Control, movePrune),
	)
}
