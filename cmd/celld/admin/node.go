package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/alecthomas/kong"

	"celld/store/fault"
)

type cellAddNode struct {
	Cell    string        `arg:"" help:"The cell's name."`
	Node    string        `arg:"" help:"The node's name within the cell."`
	Address string        `required:"" placeholder:"HOST:PORT" help:"Where the node listens, as the cell's nodes and the gateways reach it."`
	Reason  string        `help:"Why, for the audit."`
	Wait    bool          `default:"true" negatable:"" help:"Wait until the node has its vote (the default). The cell goes on by itself either way."`
	Timeout time.Duration `default:"1h" help:"How long to wait."`
}

// nodeChange is how far adding a node has come.
type nodeChange struct {
	State   string      `json:"state"`
	Applied json.Number `json:"appliedIndex"`
	Leader  json.Number `json:"leaderIndex"`
	Absent  int         `json:"absent"`
	Voters  int         `json:"voters"`
	Problem string      `json:"problem"`
}

const stateVoter = "voter"

var changeColumns = []column{{"cell", "cell"}, {"node", "node"}, {"address", "address"}, {"server id", "serverId"}, {"state", "state"},
	{"voters", "voters"}, {"applied", "appliedIndex"}, {"leader's", "leaderIndex"}, {"absent", "absent"}, {"problem", "problem"}}

// Run asks again until the node has its vote: each call waits for a while, and does
// nothing twice.
func (c *cellAddNode) Run(ctx context.Context, all *Command, out io.Writer, k *kong.Kong) error {
	return all.call(out, func(s *session) error {
		if c.Wait {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("%s has no vote after %v", c.Node, c.Timeout))
			defer cancel()
		}
		body := map[string]any{"node": c.Node, "address": c.Address, "reason": c.Reason, "wait": false}
		for {
			var doc document
			if err := s.Post(ctx, "/cells/"+url.PathEscape(c.Cell)+"/nodes", body, &doc); err != nil {
				return c.unfinished(ctx, named(err, "cell", c.Cell))
			}
			change, err := read[nodeChange](doc)
			if err != nil {
				return err
			}
			if !c.Wait || change.State == stateVoter {
				return s.show(doc, changeColumns...)
			}
			if err := c.progress(k.Stderr, change); err != nil {
				return err
			}
			body["wait"] = true
		}
	})
}

// unfinished says what becomes of a node whose adding is no longer watched.
func (c *cellAddNode) unfinished(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fault.New(fault.Unavailable, "not-finished", "%v; the cell goes on by itself, and the same command waits again", context.Cause(ctx)).Because(err)
}

func (c *cellAddNode) progress(to io.Writer, change nodeChange) error {
	line := fmt.Sprintf("%s/%s: %s, log entry %s of %s", c.Cell, c.Node, change.State, change.Applied, change.Leader)
	if change.Absent > 0 {
		line += fmt.Sprintf(", %d tenants to fetch", change.Absent)
	}
	if change.Problem != "" {
		line += ": " + clean(change.Problem)
	}
	_, err := fmt.Fprintln(to, line)
	return err
}

type cellRemoveNode struct {
	Cell   string `arg:"" help:"The cell's name."`
	Node   string `arg:"" help:"The node's name within the cell."`
	Reason string `help:"Why, for the audit."`
}

func (c *cellRemoveNode) Run(ctx context.Context, all *Command, out io.Writer, k *kong.Kong) error {
	return all.call(out, func(s *session) error {
		var doc document
		path := "/cells/" + url.PathEscape(c.Cell) + "/nodes/" + url.PathEscape(c.Node) + "/remove"
		if err := s.Post(ctx, path, map[string]any{"reason": c.Reason}, &doc); err != nil {
			return named(err, "cell", c.Cell)
		}
		change, err := read[nodeChange](doc)
		if err == nil && change.Voters < 3 {
			_, err = fmt.Fprintf(k.Stderr, "the cell %s has %d voter(s) left and does not survive the loss of one; add a node\n", c.Cell, change.Voters)
		}
		return errors.Join(err, s.show(doc, changeColumns[0], changeColumns[1], changeColumns[4], changeColumns[5]))
	})
}

// read is a document as a struct.
func read[T any](doc document) (v T, err error) {
	b, err := json.Marshal(map[string]any(doc))
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
}
