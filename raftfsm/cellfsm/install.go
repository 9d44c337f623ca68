package cellfsm

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"celld/raftfsm"
	"celld/store"
	"celld/store/failpoint"
	"celld/store/tenant"
)

// Recover implements raftfsm.Space. No file is opened: each is checked when it is
// first acquired.
func (s *Space) Recover(files []store.FileState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expect(files)
	return nil
}

// expect notes what files that are not open hold at the least. The caller holds
// mu.
func (s *Space) expect(files []store.FileState) {
	s.reached = make(map[tenant.UID]uint64, len(files))
	for _, f := range files {
		if f.Target != "" {
			s.reached[tenant.UID(f.Target)] = f.Index
		}
	}
	for uid, p := range s.places {
		s.reached[uid] = max(s.reached[uid], p.applied)
	}
	clear(s.known)
}

// Installed implements raftfsm.Space.
func (s *Space) Installed(in raftfsm.Installation) (bool, error) {
	index, err := s.applied("")
	if err != nil || index < in.OwnIndex() || in.ID == "" {
		return index >= in.OwnIndex(), err
	}
	id := ""
	err = s.local.View(func(c *store.Conn) error {
		_, err := c.One("SELECT id FROM installed", func(r *store.Row) error { id = r.ColumnText(0); return nil })
		return err
	})
	return id == in.ID, err
}

// Install implements raftfsm.Space. A crash before record changes nothing; one
// behind it leaves cell.db behind, which the next start notices. What compare
// found must be durable before it counts, because the log before the snapshot is
// as good as gone.
func (s *Space) Install(in raftfsm.Installation) error {
	lacking, err := s.compare(in.Files)
	if err != nil {
		return fmt.Errorf("compare with the snapshot: %w", err)
	}
	if err := errors.Join(s.at("compared"), s.Sync()); err != nil {
		return err
	}
	if err := s.at("synced"); err != nil {
		return err
	}
	if err := s.record(in, lacking); err != nil {
		return err
	}
	failpoint.Here(failpoint.InstallRecorded)
	if err := s.at("recorded"); err != nil {
		return err
	}
	if err := s.placeOwn(in); err != nil {
		return err
	}
	failpoint.Here(failpoint.InstallPlaced)
	return s.at("placed")
}

// compare returns an absence for each file of a snapshot that is missing here,
// behind, or of another incarnation.
func (s *Space) compare(files []store.FileState) (lacking []Absence, err error) {
	rows, err := s.Tenants()
	if err != nil {
		return nil, err
	}
	here := make(map[string]Tenant, len(rows))
	for _, row := range rows {
		here[string(row.UID)] = row
	}
	now := time.Now()
	for _, f := range files {
		if f.Target == "" {
			continue
		}
		reason := "it arrived while this replica was away"
		if row, ok := here[f.Target]; ok {
			if reason, err = s.lacks(row, f); err != nil {
				return nil, err
			}
		}
		if reason != "" {
			lacking = append(lacking, Absence{UID: tenant.UID(f.Target), Min: f.Index, Reason: reason, Since: now})
		}
	}
	return lacking, nil
}

func (s *Space) lacks(row Tenant, f store.FileState) (reason string, err error) {
	switch {
	case filepath.Join(string(row.UID), row.Folder) != f.Folder:
		return "another incarnation of it arrived while this replica was away", nil
	case f.Absent:
		return "the replica that sent the snapshot lacks it and could not say how far it should be", nil
	case s.IsAbsent(row.UID):
		return "it was absent before", nil // the least index may have grown
	}
	index, exact := s.reach(row)
	if index < f.Index && !exact {
		// Written since this replica's last snapshot: only the file knows.
		index, err = s.applied(f.Target)
		if errors.Is(err, ErrAbsent) {
			return "it turned out to be bad", nil
		}
	}
	if err != nil || index >= f.Index {
		return "", err
	}
	return fmt.Sprintf("its file is at index %d here, at %d in the snapshot that was installed", index, f.Index), nil
}

// record makes the absences durable together with the snapshot that they are of.
func (s *Space) record(in raftfsm.Installation, lacking []Absence) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.local.Update(func(c *store.Conn) error {
		for i := range lacking {
			if err := lacking[i].insert(c); err != nil {
				return err
			}
		}
		return c.Query("INSERT OR REPLACE INTO installed (one, id, snapshot_index) VALUES (1, ?, ?)", nil, in.ID, in.Index)
	})
	if err != nil {
		return err
	}
	for _, a := range lacking {
		if before, already := s.absent[a.UID]; already {
			before.Min = max(before.Min, a.Min)
			a = before
		}
		s.absent[a.UID] = a
		s.presences.gone(a.UID)
	}
	s.expect(in.Files)
	s.installing = true
	s.tellAbsence()
	s.log.Info("a snapshot was installed", "index", in.Index, "tenants", len(in.Files)-1, "absent", len(s.absent))
	return nil
}

// placeOwn replaces cell.db if it is behind.
func (s *Space) placeOwn(in raftfsm.Installation) error {
	index, err := s.applied("")
	if err != nil {
		return err
	}
	s.swap.Lock()
	defer s.swap.Unlock()
	if index < in.OwnIndex() {
		s.cell.Forget("")
		if err := in.Place(s.cellPath()); err != nil {
			return fmt.Errorf("install %s: %w", s.cellPath(), err)
		}
	}
	s.mu.Lock()
	clear(s.known)
	s.installing = false
	s.mu.Unlock()
	s.presences.reset()
	s.tellSweep("") // incarnations may have gone
	return nil
}
