package api

import (
	"encoding/json"
	"net/http"

	"github.com/bojanz/currency"

	"celld/gateway/body"
	"celld/node/records"
	"celld/raftfsm/cellfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// Bounds of an invoice's texts, in characters.
const (
	maxMemo = 2000
	maxNote = 2000
)

// audience is who the caller is among those who see invoices: the role decides on
// the bytes of that very row version.
func (c *call) audience() records.Audience {
	if c.scope.Role.Can(tenant.ReadInternal) {
		return records.Internal
	}
	return records.Public
}

func (c *call) invoice(b []byte, row *cellfsm.Invoice) []byte {
	return appendInvoice(b, c.scope.Tenant, row, c.audience() == records.Internal)
}

// invoiceRequest is the body that creates an invoice; updateInvoiceRequest
// changes one.
type invoiceRequest struct {
	Customer  json.RawMessage  `json:"customerId"`
	Amount    json.RawMessage  `json:"amountMinor"`
	Currency  *string          `json:"currency"`
	Reference *string          `json:"reference"`
	Memo      *string          `json:"memo"`
	Status    *string          `json:"status"`
	IssuedAt  *string          `json:"issuedAt"`
	Internal  *internalRequest `json:"internal"`
}

type internalRequest struct {
	CostMinor json.RawMessage `json:"costMinor"`
	Note      *string         `json:"note"`
}

type updateInvoiceRequest struct {
	invoiceRequest
	Expected json.RawMessage `json:"expectedVersion"`
}

func (r *invoiceRequest) check(f *fields) (out cellfsm.InvoiceFields, status *cellfsm.Status, in *cellfsm.Internal) {
	f.need("customerId", r.Customer != nil)
	f.need("amountMinor", r.Amount != nil)
	f.need("currency", r.Currency != nil)
	if n := f.integer("customerId", r.Customer); n != nil {
		if !n.fits || n.value < 1 {
			f.fail(cellfsm.ErrUnknownCustomer)
		}
		out.Customer = cellfsm.CustomerID(n.value)
	}
	if n := f.amount("amountMinor", r.Amount); n != nil {
		out.Amount = *n
	}
	if r.Currency != nil {
		digits, known := currency.GetDigits(*r.Currency)
		if !known {
			f.fail(fault.New(fault.Impossible, "unknown-currency", "currency must be an ISO 4217 code in capitals, like USD"))
		}
		out.Currency, out.Exponent = *r.Currency, int(digits)
	}
	out.Reference = f.text("reference", r.Reference, 1, maxReference)
	out.Memo = f.text("memo", r.Memo, 0, maxMemo)
	out.IssuedAt = f.time("issuedAt", r.IssuedAt)
	if r.Status != nil {
		s, ok := cellfsm.ParseStatus(*r.Status)
		if !ok {
			f.fail(invalidField("status", "must be one of draft, issued, paid, void"))
		}
		status = &s
	}
	if r.Internal != nil {
		in = &cellfsm.Internal{
			CostMinor: f.amount("internal.costMinor", r.Internal.CostMinor), Note: f.text("internal.note", r.Internal.Note, 0, maxNote),
		}
	}
	return out, status, in
}

func decodeCreateInvoice(raw []byte) (out cellfsm.CreateInvoice, err error) {
	var r invoiceRequest
	if err := body.Decode(raw, &r); err != nil {
		return out, err
	}
	var f fields
	var status *cellfsm.Status
	out.Fields, status, out.Internal = r.check(&f)
	out.Status = cellfsm.Draft
	if status != nil {
		out.Status = *status
	}
	return out, f.done()
}

func decodeUpdateInvoice(raw []byte) (out cellfsm.UpdateInvoice, expected *integer, err error) {
	var r updateInvoiceRequest
	if err := body.Decode(raw, &r); err != nil {
		return out, nil, err
	}
	var f fields
	out.Fields, out.Status, out.Internal = r.check(&f)
	expected = f.integer("expectedVersion", r.Expected)
	return out, expected, f.done()
}

func (s *Server) createInvoice(c *call) (answer, error) {
	raw, err := body.Read(c.w, c.r, body.Limit)
	if err != nil {
		return answer{}, err
	}
	cmd, err := decodeCreateInvoice(raw)
	if err != nil {
		return answer{}, err
	}
	if err := c.mayWriteInternal(cmd.Internal); err != nil {
		return answer{}, err
	}
	var row cellfsm.Invoice
	out, err := s.propose(c, cellfsm.CreateInvoiceNumber, cmd, &row)
	if err != nil {
		return answer{}, err
	}
	a := c.written(http.StatusCreated, c.invoice(nil, &row), row.Version, out)
	a.location = c.path("invoices", int64(row.ID))
	return a, nil
}

func (s *Server) updateInvoice(c *call) (answer, error) {
	id, err := c.id("invoice")
	if err != nil {
		return answer{}, err
	}
	raw, err := body.Read(c.w, c.r, body.Limit)
	if err != nil {
		return answer{}, err
	}
	cmd, version, err := decodeUpdateInvoice(raw)
	if err != nil {
		return answer{}, err
	}
	if err := c.mayWriteInternal(cmd.Internal); err != nil {
		return answer{}, err
	}
	cmd.ID = cellfsm.InvoiceID(id)
	if cmd.Expected, err = expected(c.r.Header, version); err != nil {
		return answer{}, err
	}
	var row cellfsm.Invoice
	out, err := s.propose(c, cellfsm.UpdateInvoiceNumber, cmd, &row)
	if err != nil {
		return answer{}, err
	}
	return c.written(http.StatusOK, c.invoice(nil, &row), row.Version, out), nil
}

// mayWriteInternal refuses the internal part from a role that may not write it:
// also an empty one, which would clear it.
func (c *call) mayWriteInternal(in *cellfsm.Internal) error {
	if in == nil {
		return nil
	}
	return c.scope.Allow(tenant.WriteInternal)
}

func (s *Server) readInvoice(c *call) (answer, error) {
	id, err := c.id("invoice")
	if err != nil {
		return answer{}, err
	}
	return s.one(c, cellfsm.InvoiceKind, id, c.audience(), func(conn *store.Conn) ([]byte, cellfsm.Version, error) {
		row, found, err := cellfsm.ReadInvoice(conn, c.scope.Tenant, cellfsm.InvoiceID(id))
		if err != nil || !found {
			return nil, 0, err
		}
		return c.invoice(nil, &row), row.Version, nil
	})
}

func (s *Server) listInvoices(c *call) (answer, error) {
	q := body.NewQuery(c.r)
	filter := cellfsm.InvoiceFilter{
		Customer: takeCustomer(q), Status: takeStatus(q), Currency: takeCurrency(q),
		CreatedAfter: takeTime(q, "createdAfter"), CreatedBefore: takeTime(q, "createdBefore"),
	}
	p, err := takePage(q, c.r, "invoiceId")
	if err == nil {
		err = q.Done()
	}
	if err != nil {
		return answer{}, err
	}
	return list[cellfsm.Invoice]{
		collection: "invoices", filter: filter, page: p,
		rows: func(conn *store.Conn, behind int64, limit int) ([]cellfsm.Invoice, int64, error) {
			rows, next, err := cellfsm.ListInvoices(conn, c.scope.Tenant, filter, p.order, cellfsm.InvoiceID(behind), limit)
			return rows, int64(next), err
		},
		render: c.invoice,
	}.serve(s, c)
}
