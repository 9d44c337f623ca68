package store

import "fmt"

// Tx is an open write transaction.
type Tx struct {
	*Conn
	Now     int64  // unix microseconds: the command's time, never before an earlier command's
	Index   uint64 // the log entry that holds the command
	file    *File
	control Control
	kept    int // commands

	// Changing, if it is set, hears of each record that a command is about to
	// change, and of the command's sequence, before anybody can see the change.
	Changing func(kind uint8, id int64, sequence uint64)
}

// Control is the control row as this transaction will write it.
func (tx *Tx) Control() *Control { return &tx.control }

// Exec runs one statement that answers no rows and returns the number of rows
// that it changed.
func (tx *Tx) Exec(sql string, args ...any) (int, error) {
	if err := tx.Query(sql, nil, args...); err != nil {
		return 0, err
	}
	return tx.c.Changes(), nil
}

// Savepoint runs fn and keeps what it did, control row included, only if it
// returns nil.
func (tx *Tx) Savepoint(fn func() error) error {
	if err := tx.Query("SAVEPOINT command", nil); err != nil {
		return err
	}
	before := tx.control
	err := fn()
	if err != nil {
		tx.restore(before)
		if undo := tx.Query("ROLLBACK TO command", nil); undo != nil {
			return fmt.Errorf("%w (undo it: %w)", err, undo)
		}
	} else {
		tx.kept++
	}
	if release := tx.Query("RELEASE command", nil); release != nil {
		return release
	}
	return err
}

// Direct is Savepoint without one, for a command that refuses before it writes, or
// by its first writing statement, which changes nothing when it fails. It costs
// less: within a savepoint SQLite copies each page before the command's first
// change of it. An error of fn's after a write comes back wrapped, since nothing
// undoes the write: the caller has Update fail with it.
func (tx *Tx) Direct(fn func() error) error {
	tx.written = 0
	before := tx.control
	err := fn()
	if err == nil {
		tx.kept++
		return nil
	}
	tx.restore(before)
	if tx.written != 0 {
		return fmt.Errorf("it had written before, without a savepoint: %w", err)
	}
	return err
}

// TakeBack runs a statement that undoes one that the command ran before, by
// changing exactly one row.
func (tx *Tx) TakeBack(sql string, args ...any) error {
	n, err := tx.Exec(sql, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("taking back one row changed %d", n)
	}
	tx.written -= 2 // this statement and that one
	return err
}

func (tx *Tx) restore(control Control) {
	tx.control = control
	clear(tx.file.given)
}

// Next gives out the number after the last one that was given out under name. The
// first time, and after each refusal, highest reads the last one from the rows.
func (tx *Tx) Next(name string, highest func(*Conn) (int64, error)) (int64, error) {
	last, known := tx.file.given[name]
	if !known {
		var err error
		if last, err = highest(tx.Conn); err != nil {
			return 0, err
		}
	}
	tx.file.given[name] = last + 1
	return last + 1, nil
}
