package raftfsm

import (
	"fmt"

	"celld/store"
)

// Class is a command's mandatory class: it decides how the command is fenced.
type Class uint8

const (
	// TenantWrite is a member's write: fenced by cell key, epoch and ACTIVE.
	TenantWrite Class = iota + 1
	// Control changes ownership or the group's own state; it checks its own
	// legal states.
	Control
	// Probe only looks: see DefineMark.
	Probe
)

// Definition is one line of a command table: of apply, plan and look it has
// one.
type Definition struct {
	Number Number
	Name   string
	Class  Class
	apply  func(tx *store.Tx, c *Command) ([]byte, error)
	look   func(c *Command, index uint64, f *store.File, why error) error // of class Probe, in place of apply
	plan   func(tx *store.Tx, c *Command) (result []byte, write func() error, err error)
}

// Define makes a table line from a typed handler. The handler runs inside a
// savepoint of the target's transaction, once on every replica, and must depend
// on nothing but tx, c and body. A *fault.Error is a refusal, unless its kind is
// Internal or Unavailable: it is returned to the caller and leaves nothing behind. Any other error is a local failure and
// stops the node. The result is encoded by Encode and, for a command with a Key,
// stored with it: ids and versions, never secrets.
func Define[B, R any](n Number, name string, class Class, handler func(tx *store.Tx, c *Command, body B) (R, error)) Definition {
	return Definition{Number: n, Name: name, Class: class, apply: func(tx *store.Tx, c *Command) ([]byte, error) {
		var body B
		if err := Decode(c.Body, &body); err != nil {
			return nil, undecodable(name, n, err)
		}
		result, err := handler(tx, c, body)
		if err != nil {
			return nil, err
		}
		return Encode(result)
	}}
}

// DefinePlanned is Define for a handler in two parts, which needs no savepoint and
// one look at the key's table instead of two. The first part reads, refuses or
// knows the result, and returns the second, which writes. The second may refuse by
// the error of its first writing statement and not later: after a write a refusal
// would leave something behind, so it stops the node. Each refusal of such a
// handler therefore has a test.
func DefinePlanned[B, R any](n Number, name string, class Class, handler func(tx *store.Tx, c *Command, body B) (R, func() error, error)) Definition {
	return Definition{Number: n, Name: name, Class: class, plan: func(tx *store.Tx, c *Command) ([]byte, func() error, error) {
		var body B
		if err := Decode(c.Body, &body); err != nil {
			return nil, nil, undecodable(name, n, err)
		}
		result, write, err := handler(tx, c, body)
		if err != nil {
			return nil, nil, err
		}
		out, err := Encode(result)
		return out, write, err
	}}
}

func undecodable(name string, n Number, err error) error {
	return fmt.Errorf("command %s (%d): undecodable body: %w", name, n, err)
}

// Table is every command that a group applies.
type Table struct {
	byNumber map[Number]Definition
	lines    []Definition
}

// NewTable makes a table. A number used twice, or a line without a class, is a
// mistake of the program and panics.
func NewTable(lines ...Definition) *Table {
	t := &Table{byNumber: make(map[Number]Definition, len(lines)), lines: lines}
	for _, d := range lines {
		if _, twice := t.byNumber[d.Number]; twice || d.Class == 0 || d.Number == 0 {
			panic(fmt.Sprintf("raftfsm: bad table line %d %s", d.Number, d.Name))
		}
		t.byNumber[d.Number] = d
	}
	return t
}

// Lines returns the table in its written order.
func (t *Table) Lines() []Definition { return t.lines }
