package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"

	"celld/node/nodetest"
)

type page struct {
	Items []struct {
		ID int64 `json:"invoiceId"`
	} `json:"items"`
	Next string `json:"nextCursor"`
}

func TestCursors(t *testing.T) {
	w := newWorld(t)
	const path = "/tenants/T7/invoices"
	w.Clock.Freeze(0) // one timestamp
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				w.want(w.As(w.member, "POST", path, usd+`}`), 201, "")
			}
		})
	}
	wg.Wait()
	// Inserts go on, with the same timestamp, while each list is walked.
	for _, sort := range []string{"invoiceId", "-invoiceId", "createdAt", "-createdAt"} {
		query := url.Values{"sort": {sort}, "limit": {"7"}}
		seen := make(map[int64]int)
		var last int64
		for {
			var p page
			if err := w.want(w.As(w.viewer, "GET", path+"?"+query.Encode(), ""), 200, "").Into(&p); err != nil {
				t.Fatal(err)
			}
			if len(p.Items) > 7 || p.Next != "" && len(p.Items) != 7 {
				t.Fatalf("a page of %d", len(p.Items))
			}
			for _, item := range p.Items {
				if last != 0 && (item.ID > last) == strings.HasPrefix(sort, "-") {
					t.Errorf("%s: %d after %d", sort, item.ID, last)
				}
				last = item.ID
				seen[last]++
			}
			if p.Next == "" {
				break
			}
			query.Set("cursor", p.Next)
			if len(seen)%28 != 0 {
				continue
			}
			w.want(w.As(w.member, "POST", path, usd+`}`), 201, "")
		}
		for id := int64(1); id <= 1000; id++ {
			if seen[id] != 1 {
				t.Fatalf("%s: invoice %d was met %d times", sort, id, seen[id])
			}
		}
	}
	w.Clock.Run()
	w.shortPage(path + "?currency=JPY")
	w.shortPage(path + "?currency=JPY&sort=-createdAt&limit=1")

	var p page
	if err := w.As(w.viewer, "GET", path+"?limit=7&status=draft", "").Into(&p); err != nil {
		t.Fatal(err)
	}
	w.want(w.As(w.viewer, "GET", path+"?limit=500&status=draft&cursor="+p.Next, ""), 200, "") // the limit may change
	bad := func(by nodetest.Caller, path string) {
		t.Helper()
		w.want(w.As(by, "GET", path, ""), 400, "invalid-cursor")
	}
	w.want(w.As(w.other, "POST", "/tenants/T8/invoices", usd+`}`), 201, "")
	bad(w.other, "/tenants/T8/invoices?limit=7&status=draft&cursor="+p.Next)
	bad(w.viewer, path+"?cursor="+p.Next)
	bad(w.viewer, path+"?status=paid&cursor="+p.Next)
	bad(w.viewer, path+"?status=draft&customerId=1&cursor="+p.Next)
	bad(w.viewer, path+"?status=draft&sort=createdAt&cursor="+p.Next)
	bad(w.viewer, "/tenants/T7/customers?cursor="+p.Next)
	bad(w.viewer, path+"?status=draft&cursor=")
	bad(w.viewer, path+"?status=draft&cursor=%00")
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		i := random.IntN(len(p.Next))
		flipped := []byte(p.Next)
		flipped[i] ^= 1 << random.IntN(8)
		bad(w.viewer, path+"?status=draft&cursor="+url.QueryEscape(string(flipped)))
	}
	// Another node opens what one sealed, and so does the same after a restart.
	leader := w.Leader()
	w.Stop(leader)
	w.want(w.As(w.viewer, "GET", path+"?status=draft&cursor="+p.Next, ""), 200, "")
	w.Start(leader)
	w.EnsureSame()
}

// shortPage wants nothing from a list of more than 1,000 invoices, in two pages:
// the first has looked at as many as one page may.
func (w *world) shortPage(list string) {
	w.t.Helper()
	first := w.want(w.As(w.viewer, "GET", list, ""), 200, "")
	var p page
	if err := first.Into(&p); err != nil || len(p.Items) != 0 || p.Next == "" || !strings.Contains(first.Header.Get("Link"), url.QueryEscape(p.Next)) {
		w.t.Fatalf("%s: %s %q %v", list, first.Body, first.Header.Get("Link"), err)
	}
	second := w.want(w.As(w.viewer, "GET", list+"&cursor="+p.Next, ""), 200, "")
	if string(second.Body) != `{"items":[]}` || second.Header.Get("Link") != "" {
		w.t.Fatalf("%s: %s %q", list, second.Body, second.Header.Get("Link"))
	}
}

func TestFilters(t *testing.T) {
	w := newWorld(t)
	const path = "/tenants/T7/invoices"
	w.As(w.member, "POST", "/tenants/T7/customers", `{"name":"C"}`)
	for _, body := range []string{
		usd + `}`, usd + `,"status":"paid"}`, `{"customerId":2,"amountMinor":1,"currency":"JPY"}`, `{"customerId":2,"amountMinor":1,"currency":"USD","status":"void"}`,
	} {
		w.want(w.As(w.member, "POST", path, body), 201, "")
	}
	var third struct {
		Created string `json:"createdAt"`
	}
	if err := w.As(w.member, "GET", path+"/3", "").Into(&third); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": "[1 2 3 4]", "?customerId=2": "[3 4]", "?status=paid": "[2]", "?currency=USD&sort=-createdAt": "[4 2 1]", "?customerId=99": "[]",
		"?status=draft&currency=JPY": "[3]", "?createdAfter=" + third.Created: "[4]", "?createdBefore=" + third.Created + "&customerId=1": "[1 2]", "?limit=500": "[1 2 3 4]",
		"?limit=1": "[1]",
	} {
		var p page
		if err := w.want(w.As(w.viewer, "GET", path+query, ""), 200, "").Into(&p); err != nil {
			t.Fatal(err)
		}
		ids := []int64{}
		for _, item := range p.Items {
			ids = append(ids, item.ID)
		}
		if fmt.Sprint(ids) != want {
			t.Errorf("%s: %v, want %s", query, ids, want)
		}
	}
	for _, query := range []string{
		"limit=0", "limit=501", "limit=x", "limit=", "limit=1&limit=2", "sort=memo", "sort=", "status=Paid", "currency=usd", "currency=XXQ", "customerId=0", "customerId=x",
		"customerId=99999999999999999999", "createdAfter=yesterday", "createdAfter=2009-01-01T00:00:00.0000001Z", "nope=1", "Limit=1", "limit=%zz", "a;b", "reference=x",
	} {
		w.want(w.As(w.viewer, "GET", path+"?"+query, ""), 400, "invalid-query")
	}
	w.want(w.As(w.viewer, "GET", path+"/1?limit=1", ""), 400, "invalid-query")
	w.want(w.As(w.member, "POST", path+"?x=1", usd+`}`), 400, "invalid-query")
	empty := w.want(w.As(w.other, "GET", "/tenants/T8/invoices", ""), 200, "")
	if string(empty.Body) != `{"items":[]}` {
		t.Errorf("%s", empty.Body)
	}
}
