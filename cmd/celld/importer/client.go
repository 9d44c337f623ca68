package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer      = 1 << 20  // bytes of one object or problem
	maxPage        = 64 << 20 // bytes of one page: pageSize objects of maxBody and some more
	pageSize       = 200
	attemptTimeout = 30 * time.Second
	firstBackoff   = 100 * time.Millisecond
	lastBackoff    = 5 * time.Second
	maxRetryAfter  = 30 * time.Second
	// firstContact bounds the retries until the gateway has answered once: until
	// then a wrong address is as likely as an outage.
	firstContact = 10 * time.Second
)

// refusal is the gateway's final answer to one request.
type refusal struct {
	status                         int
	slug, title, detail, requestID string
}

func (e *refusal) Error() string {
	text := e.title
	if e.detail != "" {
		text = e.detail
	}
	if text == "" {
		text = http.StatusText(e.status)
	}
	text = fmt.Sprintf("%s (%d %s", text, e.status, e.slug)
	if e.requestID != "" {
		text += ", request " + e.requestID
	}
	return text + ")"
}

// answer is a successful response.
type answer struct {
	status   int
	replayed bool
	body     []byte
}

// client speaks to one gateway with one token. It is safe for concurrent use.
type client struct {
	http     *http.Client
	base     string // without a slash at its end
	token    string
	retryFor time.Duration
	clock    clock
	console  *console
	tally    *tally
}

// clock is what retries wait by; tests put in one that does not wait.
type clock struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
}

func realClock() clock {
	return clock{now: time.Now, sleep: func(ctx context.Context, d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

func newHTTPClient(parallel int) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = parallel, parallel
	transport.MaxConnsPerHost = parallel
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport: transport,
		Timeout:   attemptTimeout,
		// The API has no redirects; one would carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func parseGateway(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("is not a URL like http://127.0.0.1:8080")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("has more than a scheme, a host and a path")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// do sends one request until it has a final answer: a 2xx, or an error that is a
// *refusal. 429, 502, 503, 504 and failed connections are tried again, under the
// same key, for at most retryFor. Any other error means that the import cannot go
// on; its outcome may be unknown.
func (c *client) do(ctx context.Context, method, path, key string, body []byte, limit int64) (answer, error) {
	begin, backoff := c.clock.now(), firstBackoff
	for {
		got, wait, err := c.attempt(ctx, method, path, key, body, limit)
		if err == nil {
			c.tally.reached.Store(true)
			return got, nil
		}
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		if wait < 0 {
			return answer{}, err
		}
		if wait == 0 {
			wait = backoff/2 + rand.N(backoff/2)
			backoff = min(2*backoff, lastBackoff)
		}
		budget := c.retryFor
		if !c.tally.reached.Load() {
			budget = min(budget, firstContact)
		}
		if c.clock.now().Add(wait).Sub(begin) > budget {
			return answer{}, fmt.Errorf("%s %s: gave up after retrying for %s: %w", method, path, budget, err)
		}
		c.tally.retried(c.console, err)
		if err := c.clock.sleep(ctx, wait); err != nil {
			return answer{}, err
		}
	}
}

// attempt sends the request once. With an error, wait says when to try again: 0
// when the caller may choose, negative for never.
func (c *client) attempt(ctx context.Context, method, path, key string, body []byte, limit int64) (got answer, wait time.Duration, err error) {
	const never = -1
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return got, never, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "celld-import")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return got, 0, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return got, 0, fmt.Errorf("%s %s: reading the answer: %w", method, path, err)
	}
	if int64(len(content)) > limit {
		return got, never, fmt.Errorf("%s %s: the answer is larger than %d bytes", method, path, limit)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		replayed := resp.Header.Get("Idempotency-Replayed") == "true"
		return answer{status: resp.StatusCode, replayed: replayed, body: content}, 0, nil
	}
	refused := readRefusal(resp, content)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		c.tally.reached.Store(true)
		return got, retryAfter(resp.Header.Get("Retry-After"), c.clock.now()), refused
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return got, 0, refused
	}
	return got, never, refused
}

// retryAfter reads seconds or an HTTP date; 0 for none, and never more than
// maxRetryAfter: a gateway that asks for more is asked again in between.
func retryAfter(header string, now time.Time) time.Duration {
	if header == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, min(at.Sub(now), maxRetryAfter))
	}
	return 0
}

func readRefusal(resp *http.Response, content []byte) *refusal {
	r := &refusal{status: resp.StatusCode, requestID: resp.Header.Get("X-Request-Id")}
	var problem struct{ Type, Title, Detail, RequestID string }
	// Something between us and the gateway may answer in HTML; the status says enough then.
	if json.Unmarshal(content, &problem) == nil {
		r.slug, r.title, r.detail = problem.Type, problem.Title, problem.Detail
		if problem.RequestID != "" {
			r.requestID = problem.RequestID
		}
	}
	if r.slug == "" {
		r.slug = "http-" + strconv.Itoa(resp.StatusCode)
	}
	return r
}

// concerns reports whether the refusal is about this row, so that the others may
// still be loaded. 429, 502, 503 and 504 have been tried long enough by now.
func (e *refusal) concerns(r *row) bool {
	switch e.status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return true
	case http.StatusForbidden: // not everybody may write the internal part
		return r.kind.name == "invoices" && (r.values[atCost] != "" || r.values[atNote] != "")
	}
	return false
}

// hint says what to make of refusals that come of running imports.
func (e *refusal) hint() string {
	switch e.slug {
	case "reference-taken":
		return "; another client took it after this import began: run again to compare"
	case "idempotency-key-reused":
		return "; a row with this reference and other content was loaded not long ago"
	}
	return ""
}
