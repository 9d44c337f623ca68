package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"celld/raftfsm/cellfsm"
	"celld/store/tenant"
)

// The naive twins: what is appended by hand is what encoding/json makes of these.
type invoiceJSON struct {
	Tenant    string        `json:"tenantId"`
	ID        int64         `json:"invoiceId"`
	Version   int64         `json:"version"`
	Customer  int64         `json:"customerId"`
	Amount    int64         `json:"amountMinor"`
	Currency  string        `json:"currency"`
	Reference *string       `json:"reference"`
	Status    string        `json:"status"`
	Memo      *string       `json:"memo"`
	IssuedAt  *string       `json:"issuedAt"`
	CreatedAt string        `json:"createdAt"`
	UpdatedAt string        `json:"updatedAt"`
	Internal  *internalJSON `json:"internal,omitempty"`
}

type internalJSON struct {
	CostMinor *int64  `json:"costMinor,omitempty"`
	Note      *string `json:"note,omitempty"`
}

type customerJSON struct {
	Tenant    string  `json:"tenantId"`
	ID        int64   `json:"customerId"`
	Version   int64   `json:"version"`
	Name      string  `json:"name"`
	Reference *string `json:"reference"`
	Email     *string `json:"email"`
	Country   *string `json:"country"`
	CreatedAt string  `json:"createdAt"`
	UpdatedAt string  `json:"updatedAt"`
}

// timeText is a time as answers have it, without its quotes.
func timeText(micros int64) string { return strings.Trim(string(appendTime(nil, micros)), `"`) }

func naiveTime(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func optional[T any](t *rapid.T, g *rapid.Generator[T], name string) *T {
	if !rapid.Bool().Draw(t, name+" is set") {
		return nil
	}
	v := g.Draw(t, name)
	return &v
}

func TestRenderingIsThatOfEncodingJSON(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("aZ<>&\"\\/\t\n\u007f\u2028\u00e9\U0001F600"))), rapid.StringMatching(`[ -~]{0,20}`))
	number, at := rapid.Int64(), rapid.Int64Range(-62135596800000000, 253402300799999999)
	rapid.Check(t, func(t *rapid.T) {
		id := tenant.ID(rapid.SampledFrom([]string{"T7", "some-tenant"}).Draw(t, "tenant"))
		row := cellfsm.Invoice{
			ID: cellfsm.InvoiceID(number.Draw(t, "id")), Version: cellfsm.Version(number.Draw(t, "version")), Status: cellfsm.Issued,
			Fields: cellfsm.InvoiceFields{Customer: cellfsm.CustomerID(number.Draw(t, "customer")), Amount: number.Draw(t, "amount"), Currency: "USD",
				Reference: optional(t, text, "reference"), Memo: optional(t, text, "memo"), IssuedAt: optional(t, at, "issued")},
			CreatedAt: at.Draw(t, "created"), UpdatedAt: at.Draw(t, "updated"),
		}
		if rapid.Bool().Draw(t, "internal") {
			row.Internal = &cellfsm.Internal{CostMinor: optional(t, number, "cost"), Note: optional(t, text, "note")}
		}
		for _, sees := range []bool{true, false} {
			naive := invoiceJSON{Tenant: string(id), ID: int64(row.ID), Version: int64(row.Version), Customer: int64(row.Fields.Customer),
				Amount: row.Fields.Amount, Currency: "USD", Reference: row.Fields.Reference, Status: "issued", Memo: row.Fields.Memo,
				CreatedAt: naiveTime(row.CreatedAt), UpdatedAt: naiveTime(row.UpdatedAt)}
			if row.Fields.IssuedAt != nil {
				issued := naiveTime(*row.Fields.IssuedAt)
				naive.IssuedAt = &issued
			}
			if sees && row.Internal != nil {
				naive.Internal = &internalJSON{row.Internal.CostMinor, row.Internal.Note}
			}
			same(t, appendInvoice(nil, id, &row, sees), naive)
		}
		who := cellfsm.Customer{ID: 4, Version: 2, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, Fields: cellfsm.CustomerFields{
			Name: text.Draw(t, "name"), Reference: row.Fields.Reference, Email: optional(t, text, "email"), Country: optional(t, text, "country")}}
		same(t, appendCustomer(nil, id, &who), customerJSON{Tenant: string(id), ID: 4, Version: 2, Name: who.Fields.Name, Reference: who.Fields.Reference,
			Email: who.Fields.Email, Country: who.Fields.Country, CreatedAt: naiveTime(who.CreatedAt), UpdatedAt: naiveTime(who.UpdatedAt)})
	})
}

func same(t *rapid.T, got []byte, naive any) {
	want, err := json.Marshal(naive)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}
