package platform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"celld/cmd/celld/client"
	"celld/testdata/fixture"
)

// fixtureState remembers the fixture's random parts, so that an interrupted load
// goes on with the same payloads under the same idempotency keys.
type fixtureState struct {
	Sentinels map[string]Sentinel `json:"sentinels"` // by tenant
	Loaded    bool                `json:"loaded"`
}

// Sentinel is what a tenant's objects carry and no other tenant may ever see.
type Sentinel struct {
	Memo string `json:"memo"` // in every invoice's memo
	Note string `json:"note"` // in every invoice's internal note
}

// description is testdata/fixture/fixture.json.
type description struct {
	Users []struct {
		ID    string `json:"id"`
		Email string `json:"email"`
		Name  string `json:"name"`
	} `json:"users"`
	Tenants []fixtureTenant `json:"tenants"`
}

type fixtureTenant struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cell    string `json:"cell"`
	Owner   string `json:"owner"`
	Members []struct {
		User string `json:"user"`
		Role string `json:"role"`
	} `json:"members"`
	Customers []map[string]any `json:"customers"` // customer 1 and so on
	Invoices  []map[string]any `json:"invoices"`  // invoice 1 and so on
	Updates   []struct {       // one version each, in order
		InvoiceID   int         `json:"invoiceId"`
		AmountMinor json.Number `json:"amountMinor"`
	} `json:"updates"`
}

func readDescription() (description, error) {
	var d description
	dec := json.NewDecoder(strings.NewReader(fixture.Description()))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	err := dec.Decode(&d)
	return d, err
}

func newSentinel(tenant string) Sentinel {
	return Sentinel{Memo: "memo-" + tenant + "-" + rand.Text(), Note: "note-" + tenant + "-" + rand.Text()}
}

// loadFixture makes what the fixture describes, through the APIs like anybody.
// Every step may be repeated; a loaded fixture is left alone.
func (p *Platform) loadFixture(ctx context.Context) error {
	if p.state.Fixture != nil && p.state.Fixture.Loaded {
		return nil
	}
	d, err := readDescription()
	if err != nil {
		return fmt.Errorf("read the fixture: %w", err)
	}
	if p.state.Fixture == nil {
		p.state.Fixture = &fixtureState{Sentinels: map[string]Sentinel{}}
		for _, t := range d.Tenants {
			p.state.Fixture.Sentinels[t.ID] = newSentinel(t.ID)
		}
		if err := p.saveState(); err != nil {
			return err
		}
	}
	emails := map[string]string{}
	for _, u := range d.Users {
		emails[u.ID] = u.Email
		if err := p.ensureUser(ctx, u.ID, u.Email, u.Name); err != nil {
			return err
		}
	}
	for i := range d.Tenants {
		if err := p.loadTenant(ctx, &d.Tenants[i], emails); err != nil {
			return fmt.Errorf("load the fixture's tenant %s: %w", d.Tenants[i].ID, err)
		}
	}
	p.state.Fixture.Loaded = true
	return p.saveState()
}

func (p *Platform) loadTenant(ctx context.Context, t *fixtureTenant, emails map[string]string) error {
	if err := p.ensureTenant(ctx, t.ID, t.Name, t.Owner, t.Cell); err != nil {
		return err
	}
	owner, err := p.as(t.Owner)
	if err != nil {
		return err
	}
	defer owner.Close()
	for _, m := range t.Members {
		if err := p.ensureMember(ctx, owner, t.ID, m.User, emails[m.User], m.Role); err != nil {
			return err
		}
	}
	l := loader{Client: owner, tenant: t.ID, sentinel: p.state.Fixture.Sentinels[t.ID]}
	for i, c := range t.Customers {
		if err := l.create(ctx, "customer", i+1, c); err != nil {
			return err
		}
	}
	for i, inv := range t.Invoices {
		l.mark(inv, inv["amountMinor"])
		if err := l.create(ctx, "invoice", i+1, inv); err != nil {
			return err
		}
	}
	versions := map[int]int{}
	for _, u := range t.Updates {
		if u.InvoiceID < 1 || u.InvoiceID > len(t.Invoices) {
			return fmt.Errorf("there is no invoice %d to update", u.InvoiceID)
		}
		inv := t.Invoices[u.InvoiceID-1]
		inv["amountMinor"] = u.AmountMinor
		l.mark(inv, u.AmountMinor)
		versions[u.InvoiceID]++
		if err := l.update(ctx, u.InvoiceID, versions[u.InvoiceID], inv); err != nil {
			return err
		}
	}
	return nil
}

// loader writes one tenant's objects in its owner's name.
type loader struct {
	*client.Client
	tenant   string
	sentinel Sentinel
}

func (l *loader) mark(invoice map[string]any, amount any) {
	invoice["memo"] = l.sentinel.Memo
	invoice["internal"] = map[string]any{"costMinor": amount, "note": l.sentinel.Note}
}

// create makes object number id of a kind and holds its id against the number: a
// tenant in which somebody else has written is not the fixture.
func (l *loader) create(ctx context.Context, kind string, id int, body map[string]any) error {
	var made map[string]any
	err := l.Do(ctx, client.Call{Method: http.MethodPost, Path: "/tenants/" + l.tenant + "/" + kind + "s",
		Key: fmt.Sprintf("fixture/%s/%d", kind, id), Body: body, Into: &made})
	if err != nil {
		return fmt.Errorf("%s %d: %w", kind, id, err)
	}
	if got, _ := made[kind+"Id"].(float64); int(got) != id {
		return fmt.Errorf("%s %d came out as %v; %s holds other objects already: choose another folder with --data", kind, id, made[kind+"Id"], l.tenant)
	}
	return nil
}

func (l *loader) update(ctx context.Context, id, version int, body map[string]any) error {
	err := l.Do(ctx, client.Call{Method: http.MethodPut, Path: "/tenants/" + l.tenant + "/invoices/" + strconv.Itoa(id),
		IfMatch: strconv.Quote(strconv.Itoa(version)), Key: fmt.Sprintf("fixture/invoice/%d/%d", id, version+1), Body: body})
	if err != nil {
		return fmt.Errorf("update invoice %d to version %d: %w", id, version+1, err)
	}
	return nil
}
