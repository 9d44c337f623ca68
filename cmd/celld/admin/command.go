package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"

	"celld/cmd/celld/client"
	"celld/cmd/celld/settings"
	"celld/store/fault"
)

// Command is the whole of `celld admin`.
type Command struct {
	Server    string `name:"admin" env:"CELLD_ADMIN" default:"http://127.0.0.1:8081" placeholder:"URL" help:"The operator API's URL (default ${default})."`
	TokenFile string `env:"CELLD_TOKEN_FILE" placeholder:"FILE" help:"File with the operators' token; nobody else may read it."`
	JSON      bool   `name:"json" help:"Print exactly one JSON document."`

	User   userCommand   `cmd:"" help:"Users."`
	Tenant tenantCommand `cmd:"" help:"Tenants."`
	Cell   cellCommand   `cmd:"" help:"Cells and their nodes."`
	Audit  auditCommand  `cmd:"" help:"The audit trail."`
}

// maxPages bounds how much of a list is walked.
const maxPages = 10_000

// session is one command's connection and its output.
type session struct {
	*client.Client
	out  io.Writer
	json bool
}

// call opens a session, runs fn and, with --json, tells a failure on standard
// output too.
func (c *Command) call(out io.Writer, fn func(*session) error) error {
	if c.TokenFile == "" {
		return errors.New("no operator token: name its file with --token-file or CELLD_TOKEN_FILE (celld dev writes DIR/operator-token)")
	}
	token, err := settings.Secret(c.TokenFile)
	if err != nil {
		return fmt.Errorf("the operator token: %w", err)
	}
	cl, err := client.New(c.Server, token)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	defer cl.Close()
	err = fn(&session{Client: cl, out: out, json: c.JSON})
	if err != nil && c.JSON && !errors.As(err, new(*shown)) {
		err = errors.Join(err, printJSON(out, problemOf(err)))
	}
	return err
}

// named says of a bare 404 what it was that is not there.
func named(err error, kind, id string) error {
	if e := fault.As(err); e.Kind == fault.NotFound && e.Detail == "" {
		more := *e
		more.Detail = fmt.Sprintf("there is no %s %s", kind, id)
		return &more
	}
	return err
}

func problemOf(err error) map[string]any {
	e := fault.As(err)
	if e.Slug == "internal" && e.Detail == "" && e.Err != nil {
		return map[string]any{"type": "failed", "detail": err.Error()}
	}
	doc := map[string]any{}
	maps.Copy(doc, e.Fields)
	doc["type"] = e.Slug
	if e.Detail != "" {
		doc["detail"] = e.Detail
	}
	return doc
}

func printJSON(out io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", b)
	return err
}

// document is an answer of the API, with numbers as they stand.
type document map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (d *document) UnmarshalJSON(b []byte) error {
	m, err := decodeObject(b)
	*d = m
	return err
}

// show prints one object: as fields or as it came.
func (s *session) show(doc document, columns ...column) error {
	if s.json {
		return printJSON(s.out, doc)
	}
	return printFields(s.out, doc, columns)
}

// list walks all pages of path and prints them as one list.
func (s *session) list(ctx context.Context, path string, query url.Values, limit int, columns ...column) error {
	items := []any{}
	for page := 0; ; page++ {
		var answer document
		if err := s.Get(ctx, path, query, &answer); err != nil {
			return err
		}
		got, ok := answer["items"].([]any)
		if !ok {
			return fmt.Errorf("%s answered no list; is this celld's operator API?", path)
		}
		items = append(items, got...)
		next, _ := answer["nextCursor"].(string)
		if next == "" || limit > 0 && len(items) >= limit {
			break
		}
		if page == maxPages {
			return fmt.Errorf("the list has more than %d pages", maxPages)
		}
		if query == nil {
			query = url.Values{}
		}
		query.Set("cursor", next)
	}
	if limit > 0 && len(items) > limit {
		items = items[:limit]
	}
	if s.json {
		return printJSON(s.out, map[string]any{"items": items})
	}
	return printTable(s.out, items, columns)
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// shown is a failure whose document is on standard output already.
type shown struct{ error }

// Unwrap returns the failure.
func (s *shown) Unwrap() error { return s.error }

func told(err error) error {
	if err == nil {
		return nil
	}
	return &shown{err}
}
