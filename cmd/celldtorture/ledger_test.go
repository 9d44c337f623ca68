package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"celld/cmd/celld/client"
)

// TestCheck has the check find what a broken platform would do.
func TestCheck(t *testing.T) {
	type invoice struct {
		InvoiceID   int64  `json:"invoiceId"`
		AmountMinor int64  `json:"amountMinor"`
		Reference   string `json:"reference"`
	}
	good := []invoice{{3, 3, "n2"}, {2, 2, "n1"}, {1, 1, "n0"}}
	for _, test := range []struct {
		name  string
		there []invoice
		want  string
	}{
		{"all there", good, ""},
		{"one lost", []invoice{good[0], good[2]}, "3 invoices were acknowledged since the last check, 2 of them are there"},
		{"the newest lost", good[1:], "3 invoices were acknowledged since the last check, 2 of them are there"},
		{"one twice", []invoice{{4, 3, "n2"}, good[0], good[1], good[2]}, "n2 was acknowledged as invoice 3 over 3 and is there as 4 over 3"},
		{"one twice under its id", []invoice{good[0], good[0], good[1], good[2]}, "n2 is there twice"},
		{"one changed", []invoice{{3, 9, "n2"}, good[1], good[2]}, "there as 3 over 9"},
		{"one too many", []invoice{{4, 4, "n3"}, good[0], good[1], good[2]}, `invoice 4 ("n3") was never acknowledged`},
		{"a stranger", []invoice{{4, 4, ""}, good[0], good[1], good[2]}, `invoice 4 ("") was never acknowledged`},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(map[string]any{"items": test.there}); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			c, err := client.New(server.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			l := &ledger{tenant: "X1", c: c, ids: []int64{1, 2, 3}}
			_, err = l.check(t.Context())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check: %v, want %q", err, test.want)
			}
		})
	}
}
