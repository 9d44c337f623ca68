package openapitest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const document = `
openapi: 3.0.3
info: {title: t, version: "1"}
paths:
  /things/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: integer}}
    put:
      operationId: putThing
      parameters:
        - {name: limit, in: query, schema: {type: integer, maximum: 5}}
      requestBody:
        required: true
        content: {application/json: {schema: {type: object, required: [name], properties: {name: {type: string}}}}}
      responses:
        '200':
          description: ok
          headers: {X-Request-Id: {required: true, schema: {type: string}}}
          content: {application/json: {schema: {type: object, additionalProperties: false, properties: {n: {type: integer}}}}}
        '404': {description: no, content: {application/problem+json: {schema: {type: object}}}}
`

func TestChecker(t *testing.T) {
	const notFound = `{"type":"not-found","title":"Not found","status":404,"requestId":"r"}`
	problem := http.Header{"Content-Type": {"application/problem+json"}, "X-Request-Id": {"r"}}
	fine := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}}
	for _, c := range []struct {
		name, method, path, sent string
		status                   int
		header                   http.Header
		body                     string
		violated                 bool
	}{
		{"good", "PUT", "/things/1", `{"name":"a"}`, 200, fine, `{"n":1}`, false},
		{"unknown member", "PUT", "/things/1", `{"name":"a"}`, 200, fine, `{"n":1,"secret":2}`, true},
		{"wrong type", "PUT", "/things/1", `{"name":"a"}`, 200, fine, `{"n":"1"}`, true},
		{"no header", "PUT", "/things/1", `{"name":"a"}`, 200, http.Header{"Content-Type": {"application/json"}}, `{"n":1}`, true},
		{"unknown status", "PUT", "/things/1", `{"name":"a"}`, 500, problem, `{}`, true},
		{"unknown content type", "PUT", "/things/1", `{"name":"a"}`, 200, http.Header{"Content-Type": {"text/html"}, "X-Request-Id": {"r"}}, `x`, true},
		{"a wrong request that was accepted", "PUT", "/things/1?limit=6", `{"name":"a"}`, 200, fine, `{"n":1}`, true},
		{"a wrong body that was accepted", "PUT", "/things/1", `{}`, 200, fine, `{"n":1}`, true},
		{"a wrong request that was refused", "PUT", "/things/x", `{}`, 404, problem, notFound, false},
		{"a path off the map", "GET", "/nothing", "", 404, problem, notFound, false},
		{"a success off the map", "GET", "/nothing", "", 200, fine, `{}`, true},
		{"no problem", "GET", "/nothing", "", 404, fine, `{}`, true},
		{"another request id", "GET", "/nothing", "", 404, http.Header{"Content-Type": {"application/problem+json"}, "X-Request-Id": {"s"}}, notFound, true},
		{"405 without Allow", "GET", "/things/1", "", 405, problem, `{"type":"m","title":"M","status":405,"requestId":"r"}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker, err := New([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			var arrived string
			client := &http.Client{Transport: checker.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Body != nil {
					raw, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					arrived = string(raw)
				}
				return &http.Response{StatusCode: c.status, Header: c.header, Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
			}))}
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://example.org"+c.path, strings.NewReader(c.sent))
			if err != nil {
				t.Fatal(err)
			}
			if c.sent != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if err != nil || string(raw) != c.body || arrived != c.sent {
				t.Errorf("passed on %q, came back %q, %v", arrived, raw, err)
			}
			if got := checker.Violations(); (len(got) > 0) != c.violated {
				t.Errorf("violations %v", got)
			}
		})
	}
}
