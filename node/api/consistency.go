package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"celld/node/records"
	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	// patience bounds how long a read waits for this replica to reach an index.
	patience = 2 * time.Second
	// scanTime bounds the statements of a list.
	scanTime = 5 * time.Second
	// proposal bounds how long a write waits for its outcome.
	proposal = 5 * time.Second
)

// freshness is how old an answer may be.
type freshness struct {
	stale    bool
	min      bool
	minEpoch tenant.Epoch
	minIndex uint64
}

func parseFreshness(h http.Header) (freshness, error) {
	var f freshness
	switch given := h[HeaderConsistency]; {
	case len(given) == 0:
	case len(given) == 1 && given[0] == "stale":
		f.stale = true
	default:
		return f, fault.New(fault.Invalid, "invalid-header", "Celld-Consistency can be: stale")
	}
	given := h[HeaderMinIndex]
	if len(given) == 0 {
		return f, nil
	}
	bad := fault.New(fault.Invalid, "invalid-header", "Celld-Min-Index is a Celld-Index of an earlier answer")
	if len(given) != 1 {
		return f, bad
	}
	left, right, _ := strings.Cut(given[0], ".")
	epoch, ok := parsePositive(left)
	index, err := strconv.ParseUint(right, 10, 63)
	if !ok || err != nil || strconv.FormatUint(index, 10) != right {
		return f, bad
	}
	f.min, f.minEpoch, f.minIndex = true, tenant.Epoch(epoch), index
	return f, nil
}

// settle returns when this replica may answer the read that c asks for.
func (s *Server) settle(c *call) error {
	f, err := parseFreshness(c.r.Header)
	if err != nil {
		return err
	}
	c.stale = f.stale
	if f.min && f.minEpoch > c.scope.Epoch {
		// The caller has seen the tenant at a later place than the gateway knows.
		return fault.New(fault.Moved, "placement-changed", "the tenant has moved on")
	}
	if !f.stale {
		_, err := s.cfg.Log.ReadIndex(c.r.Context()) // it has bounds of its own
		switch {
		case errors.Is(err, raftfsm.ErrNotLeader) && f.min:
		case err != nil:
			return err
		}
	}
	if f.min && f.minEpoch == c.scope.Epoch {
		ctx, cancel := context.WithTimeout(c.r.Context(), patience)
		defer cancel()
		return s.cfg.Log.WaitApplied(ctx, f.minIndex)
	}
	return nil
}

// one answers with one record, as fresh as the request asks: from the cache, or
// from the tenant's file by read, which renders it and returns nothing where there
// is no such record.
func (s *Server) one(c *call, kind cellfsm.Kind, id int64, whom records.Audience, read func(*store.Conn) ([]byte, cellfsm.Version, error)) (answer, error) {
	a := answer{status: http.StatusOK, epoch: c.scope.Epoch}
	if err := s.settle(c); err != nil {
		return a, err
	}
	if found, err := s.remembered(c, &a, records.Key{ID: id, Kind: kind, Audience: whom}); found || err != nil {
		return a, err
	}
	err := s.open(c, &a, func(f *store.File) error {
		// Before the row is read, so that it is never ahead of what is read.
		sequence := f.Control().Sequence
		return f.View(func(conn *store.Conn) error {
			body, version, err := read(conn)
			if err != nil || body == nil {
				return err
			}
			a.record = records.NewEntry(body, version)
			s.cfg.Records.Fill(s.cfg.Space.Presence(c.scope.UID), sequence, kind, id, whom, a.record)
			return nil
		})
	})
	if err == nil && a.record == nil {
		err = fault.Unknown()
	}
	return a, err
}

// remembered looks a record up in the cache, under the same admission as a read of
// the file, which need not be open.
func (s *Server) remembered(c *call, a *answer, k records.Key) (found bool, err error) {
	presence := s.cfg.Space.Presence(c.scope.UID)
	if s.cfg.Records == nil || presence == nil {
		return false, nil
	}
	key, err := s.cfg.Space.Key()
	if err != nil {
		return false, err
	}
	if err := c.admit(presence.Control(), key); err != nil {
		return false, err
	}
	k.Life = presence.Life()
	if a.record = s.cfg.Records.Find(k); a.record == nil {
		return false, nil
	}
	a.index = presence.Control().Applied // after the record, so never below what it shows
	return true, nil
}

// open runs fn on the file of the scope's tenant, if the scope may read it.
func (s *Server) open(c *call, a *answer, fn func(*store.File) error) (err error) {
	defer func() {
		if s.cfg.Space.Noticed(c.scope.UID, err) {
			err = cellfsm.ErrAbsent.Because(err) // from now on, and another node may answer
		}
	}()
	key, err := s.cfg.Space.Key()
	if err != nil {
		return err
	}
	file, release, err := s.cfg.Space.Acquire(string(c.scope.UID))
	if err != nil {
		return err
	}
	defer release()
	if err := c.admit(file.Control(), key); err != nil {
		return err
	}
	if err := fn(file); err != nil {
		return err
	}
	// Read after the rows, the index is never below what they show.
	a.epoch, a.index = c.scope.Epoch, file.Control().Applied
	return nil
}

// admit lets a read in. While a move holds the tenant nobody but the directory knows
// where its writer is: then only who asked for stale data gets some.
func (c *call) admit(ctl store.Control, key tenant.CellKey) error {
	if ctl.Tenant != c.scope.Tenant || ctl.UID != c.scope.UID {
		return fault.Unknown() // the context pairs an id with another tenant's uid
	}
	if c.stale {
		return cellfsm.AdmitStale(ctl, key, c.scope.Epoch)
	}
	return cellfsm.Admit(ctl, key, c.scope.Epoch)
}

// propose has a member's write applied under its idempotency key, and decodes
// its result. The key's hash is over body, in which path ids and the expected
// version are.
func (s *Server) propose(c *call, number raftfsm.Number, body, result any) (raftfsm.Outcome, error) {
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	hash, err := raftfsm.HashOf(body)
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	cmd, err := raftfsm.NewCommand(number, string(c.scope.UID), body)
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	cmd.Epoch, cmd.Actor = uint64(c.scope.Epoch), string(c.scope.Actor)
	cmd.Key = &raftfsm.Key{Actor: string(c.scope.Actor), Operation: c.route.Name, Key: key, Hash: hash}
	ctx, cancel := context.WithTimeout(c.r.Context(), proposal)
	defer cancel()
	if err := s.known(ctx, c.scope); err != nil {
		return raftfsm.Outcome{}, err
	}
	out, err := s.cfg.Log.Propose(ctx, cmd)
	if err != nil {
		return raftfsm.Outcome{}, err
	}
	return out, out.Into(result)
}

// known refuses a write whose context pairs a tenant's id with another tenant's
// uid: the log knows tenants by uid alone. It refuses one of a tenant that is
// absent here too: nobody could tell its outcome.
func (s *Server) known(ctx context.Context, scope tenant.Scope) error {
	row, err := s.cfg.Space.Tenant(scope.UID)
	if errors.Is(err, cellfsm.ErrNotHere) {
		// It may be in entries that a new leader has yet to apply.
		if _, err := s.cfg.Log.ReadIndex(ctx); err != nil {
			return err
		}
		row, err = s.cfg.Space.Tenant(scope.UID)
	}
	if err != nil {
		return err
	}
	if row.ID != scope.Tenant {
		return fault.Unknown()
	}
	if s.cfg.Space.IsAbsent(scope.UID) {
		return cellfsm.ErrAbsent
	}
	return nil
}

const maxKey = 255

// idempotencyKey is the request's key. A gateway makes one where its client sent
// none, so that its own retries have one effect; here it is required.
func idempotencyKey(h http.Header) (string, error) {
	given := h[HeaderKey]
	bad := fault.New(fault.Invalid, "invalid-idempotency-key", "Idempotency-Key is 1..255 printable ASCII characters, given once")
	if len(given) != 1 || len(given[0]) == 0 || len(given[0]) > maxKey {
		return "", bad
	}
	for i := 0; i < len(given[0]); i++ {
		if b := given[0][i]; b < ' ' || b > '~' {
			return "", bad
		}
	}
	return given[0], nil
}

// expected is the version that an update is made to, from If-Match or from the
// body's expectedVersion.
func expected(h http.Header, inBody *integer) (cellfsm.Version, error) {
	var versions []int64
	if given, ok := h["If-Match"]; ok {
		bad := fault.New(fault.Invalid, "invalid-if-match", `If-Match is one ETag of an earlier answer, like "5"`)
		if len(given) != 1 || len(given[0]) < 3 || given[0][0] != '"' || given[0][len(given[0])-1] != '"' {
			return 0, bad
		}
		n, ok := parsePositive(given[0][1 : len(given[0])-1])
		if !ok {
			return 0, bad
		}
		versions = append(versions, n)
	}
	if inBody != nil {
		if !inBody.fits || inBody.value < 1 {
			return 0, invalidField("expectedVersion", "must be a version, from 1")
		}
		versions = append(versions, inBody.value)
	}
	switch {
	case len(versions) == 0:
		return 0, fault.New(fault.PreconditionRequired, "expected-version-required", "say which version you change: If-Match or expectedVersion")
	case len(versions) == 2 && versions[0] != versions[1]:
		return 0, fault.New(fault.Invalid, "invalid-if-match", "If-Match and expectedVersion name different versions")
	}
	return cellfsm.Version(versions[0]), nil
}
