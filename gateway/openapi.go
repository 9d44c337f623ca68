package gateway

import (
	_ "embed"
	"net/http"
	"strconv"
)

//go:embed openapi.yaml
var document []byte

// OpenAPI is the description of the public API.
func OpenAPI() []byte { return document }

func (g *Gateway) openapi(x *exchange, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	h := x.Header()
	h.Set("Content-Type", "application/yaml")
	h.Set("Content-Length", strconv.Itoa(len(document)))
	x.WriteHeader(http.StatusOK)
	_, _ = x.Write(document) // a client that has gone reads no error either
	return nil
}
