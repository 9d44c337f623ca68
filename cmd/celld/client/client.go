// Package client calls celld's HTTP APIs for the command line: one function that
// sends JSON, retries under one idempotency key what may be retried, and turns a
// problem back into the *fault.Error that it was.
//
// Bounds: an answer of at most 16 MiB, a call of at most the context's time, a
// redirect is never followed. It keeps no state but pooled connections; Close
// ends those.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"celld/gateway/problem"
	"celld/store/fault"
)

const (
	maxAnswer  = 16 << 20
	maxTries   = 8
	firstPause = 100 * time.Millisecond
)

// Client speaks to one server as one caller.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// New makes a client of the server at base, an URL without a path.
func New(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("%q is not a server's URL like http://127.0.0.1:8081", base)
	}
	return &Client{
		base:  u.Scheme + "://" + u.Host,
		token: token,
		http: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second},
			Timeout:       60 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// As is a client of the same server with another token, over the same connections.
func (c *Client) As(token string) *Client { return &Client{base: c.base, token: token, http: c.http} }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is one request. A nil body sends none, a nil into drops the answer.
type Call struct {
	Method  string
	Path    string
	Query   url.Values
	Key     string // idempotency key of a mutation; one is made if empty
	IfMatch string
	Body    any
	Into    any
}

// Get reads path into into.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.Do(ctx, Call{Method: http.MethodGet, Path: path, Query: query, Into: into})
}

// Post sends body to path and reads the answer into into.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	return c.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: body, Into: into})
}

// Once carries out a call without trying again.
func (c *Client) Once(ctx context.Context, call Call) error { return c.try(ctx, call, 1) }

// Do carries out a call. What the server could not answer for now, and a broken
// connection, is tried again with growing pauses under the same key.
func (c *Client) Do(ctx context.Context, call Call) error { return c.try(ctx, call, maxTries) }

func (c *Client) try(ctx context.Context, call Call, tries int) error {
	var body []byte
	if call.Body != nil {
		b, err := json.Marshal(call.Body)
		if err != nil {
			return err
		}
		body = b
	}
	if call.Key == "" && call.Method != http.MethodGet {
		call.Key = "cli-" + rand.Text()
	}
	pause := firstPause
	for try := 1; ; try++ {
		err := c.once(ctx, &call, body)
		if err == nil || try == tries || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		}
	}
}

// unreachable is a failure below HTTP: no answer came.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return u.err.Error() }
func (u *unreachable) Unwrap() error { return u.err }

func again(err error) bool {
	var u *unreachable
	if errors.As(err, &u) {
		return true
	}
	switch fault.Of(err) {
	case fault.Unavailable, fault.Fenced, fault.Moved:
		return true
	}
	return false
}

func (c *Client) once(ctx context.Context, call *Call, body []byte) (err error) {
	target := c.base + call.Path
	if len(call.Query) > 0 {
		target += "?" + call.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if call.Key != "" {
		req.Header.Set("Idempotency-Key", call.Key)
	}
	if call.IfMatch != "" {
		req.Header.Set("If-Match", call.IfMatch)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &unreachable{err}
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := problem.Read(resp); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s answered %s, which is not celld's", target, resp.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return &unreachable{err}
	}
	if len(answer) > maxAnswer {
		return fmt.Errorf("the answer of %s is longer than %d bytes", target, maxAnswer)
	}
	if call.Into == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, call.Into); err != nil {
		return fmt.Errorf("the answer of %s is not what was expected: %w", target, err)
	}
	return nil
}
