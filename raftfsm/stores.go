package raftfsm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// stores is what a member keeps in its folder: log.db, stable.db, snapshots/.
type stores struct {
	log       *raftboltdb.BoltStore
	stable    *stableStore
	snapshots *snapshots
}

// openStores opens a member's folder, and makes it a founding member's if it is
// new and Bootstrap is set.
func openStores(cfg *Config) (_ *stores, err error) {
	empty, err := raftDirEmpty(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if empty && !cfg.Bootstrap {
		return nil, errWiped(cfg)
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	log, err := examine(cfg)
	if err != nil {
		return nil, err
	}
	s := new(stores)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.stable, err = openStable(cfg.Dir, cfg.Group, cfg.ID); err != nil {
		return nil, err
	}
	if err := s.keptLog(cfg); err != nil {
		return nil, err
	}
	if s.log, err = openLog(cfg.Dir); err != nil {
		return nil, err
	}
	if s.snapshots, err = openSnapshots(cfg.Dir, cfg.Space, raftLogger(cfg.Logger)); err != nil {
		return nil, err
	}
	if err := syncDirs(cfg.Dir, 1); err != nil {
		return nil, err
	}
	newest, _, err := s.snapshots.newest()
	if err != nil {
		return nil, cfg.damaged(filepath.Join(cfg.Dir, "snapshots"), err)
	}
	taken := uint64(0)
	if newest != nil {
		taken = newest.Index
	}
	if err := cfg.covered(log, taken); err != nil {
		return nil, err
	}
	return s, s.found(cfg)
}

func errWiped(cfg *Config) error {
	if joined(cfg.ID) {
		return fmt.Errorf("%s holds no log, but %s has taken part in its group before: empty the node's whole data folder, so that it joins as a new member",
			cfg.Dir, cfg.ID)
	}
	if cfg.Bootstrap {
		return fmt.Errorf("%s holds no log, but %s has been a member before, so --init does not apply: "+
			"put its folder back or leave it stopped (a wiped member under its old id could undo acknowledged writes)", cfg.Dir, cfg.ID)
	}
	return fmt.Errorf("%s holds no log: if all members of a new group start for the first time, start each once with --init; "+
		"if %s had a log before, put its folder back or leave it stopped, never with --init (a wiped member under its old id could undo acknowledged writes)",
		cfg.Dir, cfg.ID)
}

// keptLog refuses a member that joined later and has lost its log since. One that
// knows of no term has never voted nor acknowledged anything.
func (s *stores) keptLog(cfg *Config) error {
	if !joined(cfg.ID) {
		return nil // found looks
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, logFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	term, err := s.stable.GetUint64([]byte(keyTerm))
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	if term > 0 {
		return errWiped(cfg)
	}
	return nil
}

// found writes the first configuration into an empty log. A crash in an earlier
// attempt may have left the term without the entry. A member that joins later
// gets its first entry from the leader.
func (s *stores) found(cfg *Config) error {
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	taken, err := s.snapshots.List()
	if err != nil || last > 0 || len(taken) > 0 {
		return err
	}
	term, err := s.stable.GetUint64([]byte(keyTerm))
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	if !joined(cfg.ID) && (!cfg.Bootstrap || term > 1) {
		return errWiped(cfg)
	}
	files, err := cfg.Space.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Index > 0 { // from a log that is gone: a new one's entries up to there would be skipped
			return errWiped(cfg)
		}
	}
	if joined(cfg.ID) {
		return nil
	}
	var first raft.Configuration
	self := false
	for _, v := range cfg.Voters {
		first.Servers = append(first.Servers, raft.Server{ID: raft.ServerID(v.ID), Address: raft.ServerAddress(v.Address), Suffrage: raft.Voter})
		self = self || (v.ID == cfg.ID && v.Address == cfg.Transport.name)
	}
	if !self {
		return fmt.Errorf("%s (%s) is not among the group's first voters", cfg.ID, cfg.Transport.name)
	}
	if err := s.stable.SetUint64([]byte(keyTerm), 1); err != nil {
		return err
	}
	return s.log.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(first)})
}

func (s *stores) close() error {
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	if s.stable != nil {
		err = errors.Join(err, s.stable.Close())
	}
	return err
}
