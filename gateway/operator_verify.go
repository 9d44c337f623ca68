package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"celld/gateway/directory"
	"celld/gateway/hop"
	"celld/gateway/identity"
	"celld/gateway/problem"
	"celld/raftfsm/verify"
	"celld/store/fault"
	"celld/store/tenant"
)

const (
	// markTimeout bounds one question about a mark; a node waits 1 s for its digest.
	markTimeout = 4 * time.Second
	// replicasTimeout bounds the call that waits for all digests.
	replicasTimeout = 25 * time.Second
	askMarkAgain    = 50 * time.Millisecond
)

// States of a replica in a verification, besides those of package verify.
const (
	replicaBehind      = "behind"      // it has not come to the mark yet, or no longer remembers it
	replicaUnreachable = "unreachable" // it does not answer
)

type replicaJSON struct {
	Node     string `json:"node"`
	State    string `json:"state"`
	Index    uint64 `json:"appliedIndex"` // the last entry with an effect in the content
	Sequence uint64 `json:"sequence"`
	Rows     int64  `json:"rows"` // read so far
	Digest   string `json:"digest,omitempty"`
	Problem  string `json:"problem,omitempty"`

	result verify.Result
}

type verificationJSON struct {
	ID       string          `json:"verificationId"`
	TenantID tenant.ID       `json:"tenantId"`
	Cell     tenant.CellName `json:"cell"`
	Epoch    tenant.Epoch    `json:"epoch"`
	Index    uint64          `json:"index,omitempty"` // the log entry at which the replicas are compared
	State    string          `json:"state"`           // running or done
	Verdict  verify.Verdict  `json:"verdict,omitempty"`
	Equal    bool            `json:"equal"`
	Outliers []string        `json:"outliers,omitempty"` // nodes that differ from the majority
	Replicas []replicaJSON   `json:"replicas"`
}

// mark has a tenant's cell look at the tenant, on all replicas at one log entry.
func (g *Gateway) mark(ctx context.Context, p tenant.Placement) (string, error) {
	in := &hop.Request{Method: http.MethodPost, Path: "/internal/tenants/" + string(p.UID) + "/marks",
		Header: http.Header{problem.HeaderRequestID: {problem.RequestID(ctx)}}}
	t := &task{inner: in, target: func(again bool) (*cell, identity.Context, error) {
		c, err := g.cells.find(p.Cell, again)
		if err != nil {
			return nil, identity.Context{}, err
		}
		return c, verifyContext(g.cfg.Name, p, c), nil
	}}
	var got collected
	if err := g.ask(ctx, t, &got); err != nil {
		return "", err
	}
	if err := got.err(); err != nil {
		return "", err
	}
	var made struct {
		Mark string `json:"mark"`
	}
	if err := json.Unmarshal(got.body.Bytes(), &made); err != nil {
		return "", err
	}
	return made.Mark, nil
}

// verification asks every node of the cell what it has found at a mark.
func (g *Gateway) verification(ctx context.Context, p tenant.Placement, mark string) (verificationJSON, error) {
	c, err := g.cells.find(p.Cell, true)
	if err != nil {
		return verificationJSON{}, err
	}
	out := verificationJSON{ID: mark, TenantID: p.Tenant, Cell: p.Cell, Epoch: p.Epoch, State: "done"}
	out.Replicas = each(c.nodes, func(n *node) replicaJSON { return g.replica(ctx, n, p.UID, mark) })
	known := false
	compared := make([]verify.Replica, len(out.Replicas))
	for i, r := range out.Replicas {
		compared[i] = verify.Replica{Member: r.Node, Voter: true, Result: r.result}
		if r.State == string(verify.Running) || r.State == replicaBehind {
			out.State = string(verify.Running)
		}
		if r.State != replicaBehind && r.State != replicaUnreachable {
			known, out.Index = true, max(out.Index, r.result.Index)
		}
	}
	if !known {
		return out, fault.Unknown()
	}
	j := verify.Judge(compared)
	if j.Verdict != verify.Incomplete || out.State == "done" {
		out.Verdict, out.Outliers, out.Equal = j.Verdict, j.Outliers, j.Verdict == verify.Equal
	}
	return out, nil
}

func (g *Gateway) replica(ctx context.Context, n *node, uid tenant.UID, mark string) replicaJSON {
	out := replicaJSON{Node: n.name}
	err := g.askNode(ctx, n, "/internal/marks/"+url.PathEscape(mark), markTimeout, &out.result)
	switch {
	case errors.Is(err, verify.ErrNoMark), err == nil && (out.result.Target != string(uid) || out.result.Mark != mark):
		out.State, out.Problem, out.result = replicaBehind, verify.ErrNoMark.Detail, verify.Result{}
	case err != nil:
		out.State, out.Problem = replicaUnreachable, err.Error()
	default:
		r := out.result
		out.State, out.Index, out.Sequence, out.Rows, out.Digest, out.Problem = string(r.State), r.Applied, r.Sequence, r.Rows, r.Digest, r.Reason
	}
	return out
}

// begin finds the tenant, leaves the audit row and sets the mark.
func (g *Gateway) beginVerification(o *operation) (tenant.Placement, string, error) {
	if err := noQuery(o.r); err != nil {
		return tenant.Placement{}, "", err
	}
	t, err := g.tenantInPath(o)
	if err != nil {
		return tenant.Placement{}, "", err
	}
	p := t.Placement
	if err := g.record(o, directory.AuditEntry{Tenant: p.Tenant, UID: p.UID}); err != nil {
		return p, "", err
	}
	mark, err := g.mark(o.r.Context(), p)
	return p, mark, err
}

// operatorVerify begins to compare a tenant's replicas.
func (g *Gateway) operatorVerify(o *operation) error {
	p, mark, err := g.beginVerification(o)
	if err != nil {
		return err
	}
	return o.answer(http.StatusAccepted, verificationJSON{ID: mark, TenantID: p.Tenant, Cell: p.Cell, Epoch: p.Epoch,
		State: string(verify.Running), Replicas: []replicaJSON{}}, false)
}

// maxVerification bounds an id of a verification.
const maxVerification = 64

// operatorShowVerification tells how far a verification is. Who began it left the
// audit row.
func (g *Gateway) operatorShowVerification(o *operation) error {
	if err := noQuery(o.r); err != nil {
		return err
	}
	mark := o.vars["verification"]
	if len(mark) > maxVerification {
		return fault.Unknown()
	}
	t, err := g.tenantInPath(o)
	if err != nil {
		return err
	}
	out, err := g.verification(o.r.Context(), t.Placement, mark)
	if err != nil {
		return err
	}
	return o.answer(http.StatusOK, out, false)
}

// operatorReplicas compares a tenant's replicas and waits for it: for tenants that
// are digested within replicasTimeout. What is not there by then is told as it is.
func (g *Gateway) operatorReplicas(o *operation) error {
	p, mark, err := g.beginVerification(o)
	if err != nil {
		return err
	}
	end := time.NewTimer(replicasTimeout)
	defer end.Stop()
	for {
		out, err := g.verification(o.r.Context(), p, mark)
		if err == nil && out.State == "done" {
			return o.answer(http.StatusOK, out, false)
		}
		select {
		case <-time.After(askMarkAgain):
		case <-o.r.Context().Done():
			return context.Cause(o.r.Context())
		case <-end.C:
			if err != nil {
				return err
			}
			return o.answer(http.StatusOK, out, false)
		}
	}
}
