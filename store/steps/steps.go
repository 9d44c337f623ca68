// Package steps counts the steps that SQLite's virtual machine took for the
// statements of a connection: a measure of work that is the same on every machine,
// busy or not. It is for tests that hold work to a bound; the program does without.
//
// SQLite counts in sqlite3_stmt_status, which the interface that package store uses
// does not offer. So the connection's handles are read out of its fields.
package steps

import (
	"reflect"

	lib "modernc.org/sqlite/lib"

	"celld/store"
)

// Of is how many steps all statements that c keeps have taken so far. Nothing else
// may use c meanwhile.
func Of(c *store.Conn) (steps int64) {
	conn := reflect.ValueOf(c).Elem().FieldByName("c").Elem()
	db, tls := open(conn.FieldByName("conn")), open(conn.FieldByName("tls"))
	status := reflect.ValueOf(lib.Xsqlite3_stmt_status)
	next := reflect.ValueOf(lib.Xsqlite3_next_stmt)
	const keep = int32(0)
	var stmt uintptr
	for {
		stmt = uintptr(next.Call([]reflect.Value{tls, db, reflect.ValueOf(stmt)})[0].Uint())
		if stmt == 0 {
			return steps
		}
		n := status.Call([]reflect.Value{tls, reflect.ValueOf(stmt), reflect.ValueOf(int32(lib.SQLITE_STMTSTATUS_VM_STEP)), reflect.ValueOf(keep)})
		steps += n[0].Int()
	}
}

// open makes a field that only its own package may use usable.
func open(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}
