package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"celld/cmd/celld/client"
	"celld/store/fault"
)

type tenantVerify struct{ oneTenant }

const (
	// verifyEvery is how often a verification is asked after, tellEvery how often
	// the operator is told how far it is.
	verifyEvery = 200 * time.Millisecond
	tellEvery   = 2 * time.Second
	// verifyBehind bounds how long a replica that lags is waited for.
	verifyBehind = 20 * time.Second
)

// verification is what the command itself reads of the server's document.
type verification struct {
	ID       string
	State    string
	Verdict  string
	Outliers []string
	Replicas []verifiedReplica
}

type verifiedReplica struct{ node, state, rows string }

func verificationOf(doc document) verification {
	v := verification{ID: field(doc, "verificationId"), State: field(doc, "state"), Verdict: field(doc, "verdict")}
	outliers, _ := doc["outliers"].([]any)
	for _, name := range outliers {
		v.Outliers = append(v.Outliers, text(name))
	}
	replicas, _ := doc["replicas"].([]any)
	for _, one := range replicas {
		r, _ := one.(map[string]any)
		v.Replicas = append(v.Replicas, verifiedReplica{field(r, "node"), field(r, "state"), text(r["rows"])})
	}
	return v
}

func field(doc map[string]any, name string) string {
	s, _ := doc[name].(string)
	return clean(s)
}

// Run begins a verification and waits for it. It fails unless the replicas were
// all compared and are equal.
func (c *tenantVerify) Run(ctx context.Context, all *Command, out io.Writer) error {
	return all.call(out, func(s *session) error {
		doc, err := c.await(ctx, s, os.Stderr)
		if err != nil {
			return named(err, "tenant", c.Tenant)
		}
		v := verificationOf(doc)
		failed := v.failure(c.Tenant)
		if s.json && failed != nil {
			doc["type"], doc["detail"] = fault.As(failed).Slug, fault.As(failed).Detail
		}
		if err := s.showVerification(doc); err != nil {
			return err
		}
		return told(failed)
	})
}

// await begins a verification and asks after it until there is nothing to wait
// for.
func (c *tenantVerify) await(ctx context.Context, s *session, progress io.Writer) (document, error) {
	var doc document
	if err := s.Do(ctx, client.Call{Method: http.MethodPost, Path: c.path("/verifications"), Into: &doc}); err != nil {
		return nil, err
	}
	path := c.path("/verifications/" + verificationOf(doc).ID)
	began, next := time.Now(), time.Now().Add(tellEvery)
	for {
		var now document
		err := s.Get(ctx, path, nil, &now)
		lagging := time.Since(began) < verifyBehind
		if err != nil && (fault.Of(err) != fault.NotFound || !lagging) {
			return nil, err
		}
		if err == nil {
			doc = now
			v := verificationOf(doc)
			if v.State == "done" || !v.running() && !lagging {
				return doc, nil
			}
			if time.Now().After(next) {
				fmt.Fprintln(progress, v.progress())
				next = time.Now().Add(tellEvery)
			}
		}
		select {
		case <-time.After(verifyEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// running reports whether a replica is being read.
func (v *verification) running() bool {
	for _, r := range v.Replicas {
		if r.state == "running" {
			return true
		}
	}
	return false
}

func (v *verification) progress() string {
	parts := make([]string, len(v.Replicas))
	for i, r := range v.Replicas {
		parts[i] = r.node + " " + r.state
		if r.state == "running" || r.state == "done" {
			parts[i] += ", " + r.rows + " rows"
		}
	}
	return strings.Join(parts, "; ")
}

// failure is what a verification says that is not well.
func (v *verification) failure(tenant string) error {
	switch v.Verdict {
	case "equal":
		return nil
	case "divergent":
		return fault.New(fault.Conflict, "replicas-differ", "the replicas of %s differ: %s against the majority. Each of them gives its file up and fetches it anew; verify again in a moment",
			tenant, strings.Join(v.Outliers, ", "))
	case "undecided":
		return fault.New(fault.Conflict, "replicas-differ", "the replicas of %s differ and no majority agrees: nothing was done about it; see docs/operations.md", tenant)
	}
	return fault.New(fault.Unavailable, "replicas-missing", "not all replicas of %s could be compared; those that were are equal", tenant)
}

func (s *session) showVerification(doc document) error {
	if s.json {
		return printJSON(s.out, doc)
	}
	if err := printFields(s.out, doc, []column{
		{"tenant", "tenantId"}, {"cell", "cell"}, {"epoch", "epoch"}, {"index", "index"}, {"verdict", "verdict"}, {"outliers", "outliers"},
	}); err != nil {
		return err
	}
	replicas, _ := doc["replicas"].([]any)
	return printTable(s.out, replicas, []column{
		{"NODE", "node"}, {"STATE", "state"}, {"APPLIED", "appliedIndex"}, {"SEQUENCE", "sequence"}, {"ROWS", "rows"}, {"DIGEST", "digest"}, {"PROBLEM", "problem"},
	})
}
