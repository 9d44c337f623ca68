package cellfsm

import (
	"slices"

	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// InvoiceID is an invoice's number within its tenant, from 1.
type InvoiceID int64

// Status is where an invoice stands.
type Status string

const (
	Draft  Status = "draft"
	Issued Status = "issued"
	Paid   Status = "paid"
	Void   Status = "void"
)

// Statuses lists every status.
func Statuses() []Status { return []Status{Draft, Issued, Paid, Void} }

// May reports whether an invoice may go from s to t. Staying is always allowed.
// Paid and void are final: what was paid is put right by another invoice.
func (s Status) May(t Status) bool {
	if s == t {
		return true
	}
	switch s {
	case Draft:
		return t == Issued || t == Void
	case Issued:
		return t == Paid || t == Void
	}
	return false
}

// ErrUnknownCustomer refuses an invoice for a customer that the tenant lacks.
var ErrUnknownCustomer = fault.New(fault.Impossible, "unknown-customer", "the tenant has no customer with this customerId")

// ErrInvalidTransition refuses a change of status that makes no sense; its
// fields from and to tell which.
var ErrInvalidTransition = fault.New(fault.Conflict, "invalid-transition", "the invoice's status cannot change like this")

// Internal is the part of an invoice that the roles below finance do not see.
type Internal struct {
	CostMinor *int64  `cbor:"1,keyasint,omitempty"` // in minor units of the invoice's currency
	Note      *string `cbor:"2,keyasint,omitempty"`
}

// InvoiceFields is what a caller says about an invoice.
type InvoiceFields struct {
	Customer  CustomerID `cbor:"1,keyasint"`
	Amount    int64      `cbor:"2,keyasint"` // minor units, never negative
	Currency  string     `cbor:"3,keyasint"` // ISO 4217
	Exponent  int        `cbor:"4,keyasint"` // of the currency, as the proposer knew it
	Reference *string    `cbor:"5,keyasint,omitempty"`
	Memo      *string    `cbor:"6,keyasint,omitempty"`
	IssuedAt  *int64     `cbor:"7,keyasint,omitempty"` // unix microseconds
}

// Invoice is one version of an invoice. It is also the result of the commands
// that write one: stored under their key, it is the first answer's content, of
// which the internal part is shown to whoever may see it when it is answered.
type Invoice struct {
	ID        InvoiceID     `cbor:"1,keyasint"`
	Version   Version       `cbor:"2,keyasint"`
	Fields    InvoiceFields `cbor:"3,keyasint"`
	Status    Status        `cbor:"4,keyasint"`
	Internal  *Internal     `cbor:"5,keyasint,omitempty"` // nil if neither part of it is set
	CreatedAt int64         `cbor:"6,keyasint"`           // unix microseconds
	UpdatedAt int64         `cbor:"7,keyasint"`
}

// CreateInvoice is the body of CreateInvoiceNumber; the result is an Invoice.
type CreateInvoice struct {
	Fields   InvoiceFields `cbor:"1,keyasint"`
	Status   Status        `cbor:"2,keyasint"` // any: records of an older system come in as they are
	Internal *Internal     `cbor:"3,keyasint,omitempty"`
}

// UpdateInvoice is the body of UpdateInvoiceNumber; the result is an Invoice.
type UpdateInvoice struct {
	ID       InvoiceID     `cbor:"1,keyasint"`
	Expected Version       `cbor:"2,keyasint"`
	Fields   InvoiceFields `cbor:"3,keyasint"`
	Status   *Status       `cbor:"4,keyasint,omitempty"` // nil: as it is
	Internal *Internal     `cbor:"5,keyasint,omitempty"` // nil: as it is; empty: cleared
}

func createInvoice(tx *store.Tx, c *raftfsm.Command, body CreateInvoice) (Invoice, func() error, error) {
	id, err := next(tx, "invoice")
	if err != nil {
		return Invoice{}, nil, err
	}
	made := Invoice{
		ID: InvoiceID(id), Version: 1, Fields: body.Fields, Status: body.Status, Internal: body.Internal.orNil(),
		CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}
	return made, func() error {
		if _, err := tx.Exec(`INSERT INTO invoice (version, customer_id, amount_minor, currency, exponent, reference, status, memo,
			issued_at, cost_minor, note, updated_at, created_at, tenant_id, invoice_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append(made.values(), tx.Now, string(tx.Control().Tenant), id)...); err != nil {
			return refusal(err)
		}
		return record(tx, c, InvoiceCreated, id, 1)
	}, nil
}

func updateInvoice(tx *store.Tx, c *raftfsm.Command, body UpdateInvoice) (Invoice, func() error, error) {
	row, found, err := ReadInvoice(tx.Conn, tx.Control().Tenant, body.ID)
	if err != nil {
		return Invoice{}, nil, err
	}
	if !found {
		return Invoice{}, nil, fault.Unknown()
	}
	if err := expect(body.Expected, row.Version); err != nil {
		return Invoice{}, nil, err
	}
	if body.Status != nil {
		if !row.Status.May(*body.Status) {
			return Invoice{}, nil, ErrInvalidTransition.With("from", string(row.Status)).With("to", string(*body.Status))
		}
		row.Status = *body.Status
	}
	if body.Internal != nil {
		row.Internal = body.Internal.orNil()
	}
	row.Version++
	row.Fields = body.Fields
	row.UpdatedAt = tx.Now
	return row, func() error {
		if _, err := tx.Exec(`UPDATE invoice SET version = ?, customer_id = ?, amount_minor = ?, currency = ?, exponent = ?,
			reference = ?, status = ?, memo = ?, issued_at = ?, cost_minor = ?, note = ?, updated_at = ?
			WHERE tenant_id = ? AND invoice_id = ?`, append(row.values(), string(tx.Control().Tenant), int64(row.ID))...); err != nil {
			return refusal(err)
		}
		return record(tx, c, InvoiceUpdated, int64(row.ID), row.Version)
	}, nil
}

// refusal turns what the file's constraints say into what the caller is told.
func refusal(err error) error {
	switch {
	case store.IsForeignKey(err):
		return ErrUnknownCustomer
	case store.IsUnique(err):
		return ErrReferenceTaken
	}
	return err
}

// values are the columns that both writing statements set, in their order.
func (i *Invoice) values() []any {
	f, in := i.Fields, i.Internal
	if in == nil {
		in = &Internal{}
	}
	return []any{
		int64(i.Version), int64(f.Customer), f.Amount, f.Currency, f.Exponent, textOrNull(f.Reference), string(i.Status),
		textOrNull(f.Memo), intOrNull(f.IssuedAt), intOrNull(in.CostMinor), textOrNull(in.Note), i.UpdatedAt,
	}
}

func (i *Internal) orNil() *Internal {
	if i == nil || i.CostMinor == nil && i.Note == nil {
		return nil
	}
	return i
}

const invoiceColumns = `invoice_id, version, customer_id, amount_minor, currency, exponent, reference, memo, issued_at,
	status, cost_minor, note, created_at, updated_at`

func scanInvoice(r *store.Row) Invoice {
	internal := &Internal{CostMinor: optionalInt(r, 10), Note: optionalText(r, 11)}
	return Invoice{
		ID: InvoiceID(r.ColumnInt64(0)), Version: Version(r.ColumnInt64(1)),
		Fields: InvoiceFields{
			Customer: CustomerID(r.ColumnInt64(2)), Amount: r.ColumnInt64(3), Currency: r.ColumnText(4),
			Exponent: r.ColumnInt(5), Reference: optionalText(r, 6), Memo: optionalText(r, 7), IssuedAt: optionalInt(r, 8),
		},
		Status: Status(r.ColumnText(9)), Internal: internal.orNil(),
		CreatedAt: r.ColumnInt64(12), UpdatedAt: r.ColumnInt64(13),
	}
}

// ReadInvoice reads one invoice of the tenant t.
func ReadInvoice(c *store.Conn, t tenant.ID, id InvoiceID) (row Invoice, found bool, err error) {
	found, err = c.One("SELECT "+invoiceColumns+" FROM invoice WHERE tenant_id = ? AND invoice_id = ?",
		func(r *store.Row) error { row = scanInvoice(r); return nil }, string(t), int64(id))
	return row, found, err
}

// ParseStatus reads a status's name, matched exactly.
func ParseStatus(s string) (Status, bool) {
	return Status(s), slices.Contains(Statuses(), Status(s))
}
