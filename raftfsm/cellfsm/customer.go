package cellfsm

import (
	"celld/raftfsm"
	"celld/store"
	"celld/store/fault"
	"celld/store/tenant"
)

// CustomerID is a customer's number within its tenant, from 1.
type CustomerID int64

// CustomerFields is what a caller says about a customer.
type CustomerFields struct {
	Name      string  `cbor:"1,keyasint"`
	Reference *string `cbor:"2,keyasint,omitempty"`
	Email     *string `cbor:"3,keyasint,omitempty"`
	Country   *string `cbor:"4,keyasint,omitempty"`
}

// Customer is one version of a customer. It is also the result of the commands
// that write one: stored under their key, it is the first answer's content.
type Customer struct {
	ID        CustomerID     `cbor:"1,keyasint"`
	Version   Version        `cbor:"2,keyasint"`
	Fields    CustomerFields `cbor:"3,keyasint"`
	CreatedAt int64          `cbor:"4,keyasint"` // unix microseconds
	UpdatedAt int64          `cbor:"5,keyasint"`
}

// CreateCustomer is the body of CreateCustomerNumber; the result is a Customer.
type CreateCustomer struct {
	Fields CustomerFields `cbor:"1,keyasint"`
}

// UpdateCustomer is the body of UpdateCustomerNumber; the result is a Customer.
type UpdateCustomer struct {
	ID       CustomerID     `cbor:"1,keyasint"`
	Expected Version        `cbor:"2,keyasint"`
	Fields   CustomerFields `cbor:"3,keyasint"`
}

func createCustomer(tx *store.Tx, c *raftfsm.Command, body CreateCustomer) (Customer, func() error, error) {
	id, err := next(tx, "customer")
	if err != nil {
		return Customer{}, nil, err
	}
	made := Customer{ID: CustomerID(id), Version: 1, Fields: body.Fields, CreatedAt: tx.Now, UpdatedAt: tx.Now}
	return made, func() error {
		f := made.Fields
		if _, err := tx.Exec(`INSERT INTO customer (tenant_id, customer_id, version, name, reference, email, country, created_at, updated_at)
			VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?)`, string(tx.Control().Tenant), id,
			f.Name, textOrNull(f.Reference), textOrNull(f.Email), textOrNull(f.Country), tx.Now, tx.Now); err != nil {
			return refusal(err)
		}
		return record(tx, c, CustomerCreated, id, 1)
	}, nil
}

func updateCustomer(tx *store.Tx, c *raftfsm.Command, body UpdateCustomer) (Customer, func() error, error) {
	row, found, err := ReadCustomer(tx.Conn, tx.Control().Tenant, body.ID)
	if err != nil {
		return Customer{}, nil, err
	}
	if !found {
		return Customer{}, nil, fault.Unknown()
	}
	if err := expect(body.Expected, row.Version); err != nil {
		return Customer{}, nil, err
	}
	row.Version++
	row.Fields = body.Fields
	row.UpdatedAt = tx.Now
	return row, func() error {
		f := row.Fields
		if _, err := tx.Exec(`UPDATE customer SET version = ?, name = ?, reference = ?, email = ?, country = ?, updated_at = ?
			WHERE tenant_id = ? AND customer_id = ?`, int64(row.Version),
			f.Name, textOrNull(f.Reference), textOrNull(f.Email), textOrNull(f.Country), tx.Now,
			string(tx.Control().Tenant), int64(row.ID)); err != nil {
			return refusal(err)
		}
		return record(tx, c, CustomerUpdated, int64(row.ID), row.Version)
	}, nil
}

const customerColumns = "customer_id, version, name, reference, email, country, created_at, updated_at"

func scanCustomer(r *store.Row) Customer {
	return Customer{
		ID: CustomerID(r.ColumnInt64(0)), Version: Version(r.ColumnInt64(1)),
		Fields: CustomerFields{
			Name: r.ColumnText(2), Reference: optionalText(r, 3), Email: optionalText(r, 4), Country: optionalText(r, 5),
		},
		CreatedAt: r.ColumnInt64(6), UpdatedAt: r.ColumnInt64(7),
	}
}

// ReadCustomer reads one customer of the tenant t.
func ReadCustomer(c *store.Conn, t tenant.ID, id CustomerID) (row Customer, found bool, err error) {
	found, err = c.One("SELECT "+customerColumns+" FROM customer WHERE tenant_id = ? AND customer_id = ?",
		func(r *store.Row) error { row = scanCustomer(r); return nil }, string(t), int64(id))
	return row, found, err
}
