package dirfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// PutNode notes where a node of a cell listens, for a new node or one that moved.
type PutNode struct {
	_       struct{} `cbor:",toarray"`
	Cell    tenant.CellName
	Node    CellNode
	Reason  string
	Members int64 // at most so many nodes
}

// RemoveNode forgets a node of a cell. One that is not there is no error.
type RemoveNode struct {
	_      struct{} `cbor:",toarray"`
	Cell   tenant.CellName
	Node   string
	Reason string
}

func (h handlers) putNode(tx *store.Tx, c *raftfsm.Command, b PutNode) (Nothing, error) {
	if err := needCell(tx, c, b.Cell); err != nil {
		return Nothing{}, err
	}
	others, err := count(tx, "SELECT count(*) FROM cell_node WHERE cell = ? AND node <> ?", string(b.Cell), b.Node.Name)
	if err != nil {
		return Nothing{}, err
	}
	if others >= b.Members {
		return Nothing{}, fault.New(fault.Conflict, "too-many-nodes", "a cell has at most %d nodes; remove one first", b.Members)
	}
	if _, err := tx.Exec(`INSERT INTO cell_node (cell, node, address) VALUES (?1, ?2, ?3)
		ON CONFLICT (cell, node) DO UPDATE SET address = ?3`, string(b.Cell), b.Node.Name, b.Node.Address); err != nil {
		return Nothing{}, err
	}
	if err := audit(tx, c, event{action: "add-node", subject: string(b.Cell) + "/" + b.Node.Name, detail: because(b.Node.Address, b.Reason)}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

func (h handlers) removeNode(tx *store.Tx, c *raftfsm.Command, b RemoveNode) (Nothing, error) {
	if err := needCell(tx, c, b.Cell); err != nil {
		return Nothing{}, err
	}
	others, err := count(tx, "SELECT count(*) FROM cell_node WHERE cell = ? AND node <> ?", string(b.Cell), b.Node)
	if err != nil {
		return Nothing{}, err
	}
	if others == 0 {
		return Nothing{}, fault.New(fault.Conflict, "last-node", "%s is the last node of the cell %s; add another one first", b.Node, b.Cell)
	}
	if _, err := tx.Exec("DELETE FROM cell_node WHERE cell = ? AND node = ?", string(b.Cell), b.Node); err != nil {
		return Nothing{}, err
	}
	if err := audit(tx, c, event{action: "remove-node", subject: string(b.Cell) + "/" + b.Node, detail: b.Reason}); err != nil {
		return Nothing{}, err
	}
	h.touch(tx)
	return Nothing{}, nil
}

// needCell lets operators act on a cell that is there.
func needCell(tx *store.Tx, c *raftfsm.Command, name tenant.CellName) error {
	if err := needOperator(c); err != nil {
		return err
	}
	found, err := tx.One("SELECT 1 FROM cell WHERE name = ?", nil, string(name))
	if err != nil {
		return err
	}
	if !found {
		return fault.Unknown()
	}
	return nil
}

// because is the detail of an act with a reason.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}
