package api

import (
	"encoding/json"
	"strconv"
	"time"

	"celld/raftfsm/cellfsm"
	"celld/store/tenant"
)

// The JSON of records, which is what a cell writes most, is appended by hand: the
// same bytes that encoding/json would make of a struct, at a tenth of its time. What
// is not set is null, but for an invoice's internal part, which is left out where it
// is not set and where it is not meant for the audience.

// appendInvoice renders one row version, with the internal part or without.
func appendInvoice(b []byte, t tenant.ID, row *cellfsm.Invoice, internal bool) []byte {
	f := &row.Fields
	b = appendText(append(b, `{"tenantId":`...), string(t))
	b = strconv.AppendInt(append(b, `,"invoiceId":`...), int64(row.ID), 10)
	b = strconv.AppendInt(append(b, `,"version":`...), int64(row.Version), 10)
	b = strconv.AppendInt(append(b, `,"customerId":`...), int64(f.Customer), 10)
	b = strconv.AppendInt(append(b, `,"amountMinor":`...), f.Amount, 10)
	b = appendText(append(b, `,"currency":`...), f.Currency)
	b = appendOptional(append(b, `,"reference":`...), f.Reference)
	b = appendText(append(b, `,"status":`...), string(row.Status))
	b = appendOptional(append(b, `,"memo":`...), f.Memo)
	b = append(b, `,"issuedAt":`...)
	if f.IssuedAt == nil {
		b = append(b, "null"...)
	} else {
		b = appendTime(b, *f.IssuedAt)
	}
	b = appendTime(append(b, `,"createdAt":`...), row.CreatedAt)
	b = appendTime(append(b, `,"updatedAt":`...), row.UpdatedAt)
	if internal && row.Internal != nil {
		b = appendInternal(append(b, `,"internal":`...), row.Internal)
	}
	return append(b, '}')
}

func appendInternal(b []byte, in *cellfsm.Internal) []byte {
	b = append(b, '{')
	if in.CostMinor != nil {
		b = strconv.AppendInt(append(b, `"costMinor":`...), *in.CostMinor, 10)
	}
	if in.Note != nil {
		if in.CostMinor != nil {
			b = append(b, ',')
		}
		b = appendText(append(b, `"note":`...), *in.Note)
	}
	return append(b, '}')
}

// appendCustomer renders one row version.
func appendCustomer(b []byte, t tenant.ID, row *cellfsm.Customer) []byte {
	f := &row.Fields
	b = appendText(append(b, `{"tenantId":`...), string(t))
	b = strconv.AppendInt(append(b, `,"customerId":`...), int64(row.ID), 10)
	b = strconv.AppendInt(append(b, `,"version":`...), int64(row.Version), 10)
	b = appendText(append(b, `,"name":`...), f.Name)
	b = appendOptional(append(b, `,"reference":`...), f.Reference)
	b = appendOptional(append(b, `,"email":`...), f.Email)
	b = appendOptional(append(b, `,"country":`...), f.Country)
	b = appendTime(append(b, `,"createdAt":`...), row.CreatedAt)
	b = appendTime(append(b, `,"updatedAt":`...), row.UpdatedAt)
	return append(b, '}')
}

func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return appendText(b, *s)
}

// appendText leaves every text that needs an escape to encoding/json.
func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(s) // of a string, it never fails
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

const timeLayout = `"2006-01-02T15:04:05.000000Z"`

func appendTime(b []byte, micros int64) []byte {
	return time.UnixMicro(micros).UTC().AppendFormat(b, timeLayout)
}
