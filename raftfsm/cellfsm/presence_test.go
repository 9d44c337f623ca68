package cellfsm

import (
	"bytes"
	"testing"

	"celld/store"
	"celld/store/tenant"
)

// TestLives: a file that closes and opens lives on; one that is another by then,
// and one that was taken away, begin a new life.
func TestLives(t *testing.T) {
	uid, err := tenant.NewUID(bytes.NewReader(make([]byte, 64)))
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/tenant.db"
	if err := store.Create(path, TenantSchema(), store.Control{UID: uid, Tenant: "T7", CellKey: "K", Epoch: 1, State: tenant.Active}, 0); err != nil {
		t.Fatal(err)
	}
	var ps presences
	life := func() Life {
		t.Helper()
		f, err := store.Open(path, TenantSchema())
		if err != nil {
			t.Fatal(err)
		}
		ps.opened(uid, f, "1-0")
		p := ps.find(uid)
		if p.Control() != f.Control() {
			t.Errorf("control %+v, the file has %+v", p.Control(), f.Control())
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return p.Life()
	}
	if ps.find(uid) != nil {
		t.Fatal("a file that was never open is present")
	}
	first := life()
	if again := life(); again != first {
		t.Errorf("life %d after a closing, was %d", again, first)
	}
	// Nobody notes this one, as if it had come from elsewhere.
	other, err := store.Open(path, TenantSchema())
	if err != nil {
		t.Fatal(err)
	}
	err = other.Update(func(tx *store.Tx) error {
		return tx.Savepoint(func() error { tx.Control().Applied, tx.Control().Sequence = 7, 7; return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	second := life()
	if second == first {
		t.Error("another file took over the life of the one before")
	}
	ps.gone(uid)
	if ps.find(uid) != nil {
		t.Error("a file that is gone is present")
	}
	if third := life(); third == first || third == second {
		t.Errorf("life %d was there before", third)
	}
}
